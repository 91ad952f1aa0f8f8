"""Decodes sound files to samples. Runs in the decoder process."""

from __future__ import annotations

import io

import numpy as np
import soundfile
import soxr

from llamad.media.decoder.errors import UnreadableError
from llamad.media.messages import Samples

FORMATS = ("WAV", "WAVEX", "FLAC", "MP3")
RATE_MIN, RATE_MAX = 4_000, 384_000
CHANNELS_MAX = 8
SECONDS_MIN = 0.01
BLOCK_FRAMES = 1 << 16
TAG_HEAD = 10
TAG_HAS_FOOTER = 0x10


def prepare() -> None:
    """Load all code that reading and resampling need, before memory is limited and opening files is forbidden."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(2048, np.float32), 48_000, format="WAV")
    decode(file.getvalue(), 1.0, 16_000)


def _without_tag(data: bytes) -> bytes:
    """Return the file without the ID3 tags at its beginning; libsndfile would try any format after them."""
    view = memoryview(data)
    while bytes(view[:3]) == b"ID3" and len(view) >= TAG_HEAD:
        if any(byte & 0x80 for byte in view[6:TAG_HEAD]):
            raise UnreadableError("is not WAV, MP3 or FLAC, or is broken: its ID3 tag has no length")
        n_bytes = TAG_HEAD + (view[6] << 21 | view[7] << 14 | view[8] << 7 | view[9])
        if view[5] & TAG_HAS_FOOTER:
            n_bytes += TAG_HEAD
        view = view[n_bytes:]
    # Some programs write padding after the tag.
    return bytes(view).lstrip(b"\0") if len(view) < len(data) else data


def _checked(data: bytes) -> bytes:
    """Return the data for libsndfile, which knows 25 formats and would parse any of them. Raises UnreadableError if it
    is not WAV, FLAC or MP3."""
    rest = _without_tag(data)
    is_known = (
        (rest[:4] == b"RIFF" and rest[8:12] == b"WAVE")
        or rest.startswith(b"fLaC")
        or (rest[:1] == b"\xff" and b"\xe0" <= rest[1:2] < b"\xff")
    )
    if not is_known:
        raise UnreadableError("is not WAV, MP3 or FLAC, or is broken at its beginning")
    return rest


def decode(data: bytes, seconds_max: float, sample_rate: int) -> tuple[Samples, bytes]:
    """Return all channels mixed to one, at the given sample rate. Raises UnreadableError."""
    try:
        with soundfile.SoundFile(io.BytesIO(_checked(data))) as file:
            _check(file, seconds_max)
            mono = _read(file, int(seconds_max * file.samplerate))
            rate = file.samplerate
    except soundfile.LibsndfileError as error:
        raise UnreadableError(f"is not WAV, MP3 or FLAC, or is broken: {error.error_string}") from None
    if len(mono) < SECONDS_MIN * rate:
        raise UnreadableError(f"is shorter than {SECONDS_MIN} s")
    if not np.isfinite(mono).all():
        raise UnreadableError("has samples that are not finite numbers")
    if rate != sample_rate:
        mono = soxr.resample(mono, rate, sample_rate)
    return Samples(len(mono)), np.ascontiguousarray(mono, np.float32).tobytes()


def _check(file: soundfile.SoundFile, seconds_max: float) -> None:
    if file.format not in FORMATS:
        raise UnreadableError(f"is {file.format}; WAV, MP3 and FLAC can be read")
    if not RATE_MIN <= file.samplerate <= RATE_MAX:
        raise UnreadableError(f"has {file.samplerate} samples a second; {RATE_MIN} to {RATE_MAX} can be read")
    if not 1 <= file.channels <= CHANNELS_MAX:
        raise UnreadableError(f"has {file.channels} channels; at most {CHANNELS_MAX} can be read")
    if file.frames > seconds_max * file.samplerate:
        raise UnreadableError(
            f"claims {file.frames / file.samplerate:.0f} s; the limit is {seconds_max:.0f} s (--audio-max-seconds)"
        )


def _read(file: soundfile.SoundFile, frames_max: int) -> np.ndarray:
    """Read the samples that are really there, whatever the header says. Raises UnreadableError if they are too many."""
    blocks: list[np.ndarray] = []
    n_read = 0
    while n_read <= frames_max:
        block = file.read(min(BLOCK_FRAMES, frames_max + 1 - n_read), dtype="float32", always_2d=True)
        if not len(block):
            break
        blocks.append(block.mean(axis=1, dtype=np.float32))
        n_read += len(block)
    if n_read > frames_max:
        raise UnreadableError("is longer than the limit (--audio-max-seconds)")
    return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
