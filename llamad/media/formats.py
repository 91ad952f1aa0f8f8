"""Tells sound from images by a file's first bytes. Pure functions."""

from __future__ import annotations


def is_sound(data: bytes) -> bool:
    """Whether it is a WAV, FLAC or MP3 file."""
    if data[:4] == b"RIFF":
        return data[8:12] == b"WAVE"
    return (
        data[:4] == b"fLaC"
        or data[:3] == b"ID3"
        or (
            data[:1] == b"\xff"
            and data[1:2] >= b"\xe0"
            and data[1:2] != b"\xff"
            and data[:3] != b"\xff\xd8\xff"
        )
    )
