"""Tells sound from images by a file's first bytes. Pure functions."""

from __future__ import annotations


def is_sound(data: bytes) -> bool:
    """Return whether the data begins like a WAV, FLAC or MP3 file."""
    if data[:4] == b"RIFF":
        return data[8:12] == b"WAVE"
    if data.startswith((b"fLaC", b"ID3")):
        return True
    # An MPEG frame begins with eleven set bits; the second byte of a JPEG file is smaller.
    return data[:1] == b"\xff" and b"\xe0" <= data[1:2] < b"\xff"
