"""Images and sound as files, seeded."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import soundfile
from PIL import Image


def pixels(seed: int, width: int = 100, height: int = 50) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)


def image(
    seed: int = 1, kind: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (100, 50), **options: Any
) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels(seed, *size)).convert(mode).save(out, kind, **options)
    return out.getvalue()


def sound(seed: int = 1, kind: str = "WAV", rate: int = 16_000, n: int = 16_000, channels: int = 1) -> bytes:
    out = io.BytesIO()
    samples = np.random.default_rng(seed).standard_normal((n, channels)) * 0.1
    soundfile.write(out, samples, rate, format=kind)
    return out.getvalue()
