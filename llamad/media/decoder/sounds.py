"""Owns how a sound file becomes samples. Runs in the decoder process."""

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


def prepare() -> None:
    """Load what resamples, before memory is limited."""
    soxr.resample(np.zeros(1024, np.float32), 48_000, 16_000)


def decode(data: bytes, seconds_max: float, sample_rate: int) -> tuple[Samples, bytes]:
    """All channels as one, at the wanted rate. Raises UnreadableError."""
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check(file, seconds_max)
            mono = _read(file, int(seconds_max * file.samplerate))
            rate = file.samplerate
    except soundfile.LibsndfileError as error:
        raise UnreadableError(f"is no WAV, MP3 or FLAC, or is broken: {error.error_string}") from None
    if len(mono) < SECONDS_MIN * rate:
        raise UnreadableError(f"is shorter than {SECONDS_MIN} s")
    if not np.isfinite(mono).all():
        raise UnreadableError("holds samples that are no numbers")
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
    """What is really there, whatever the header says."""
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
