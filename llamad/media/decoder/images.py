"""Decodes image files to pixels. Runs in the decoder process."""

from __future__ import annotations

import importlib
import io
import struct
import warnings
import zlib

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from llamad.media.decoder.errors import UnreadableError
from llamad.media.messages import Pixels

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
SIDE_MAX = 1 << 16
# Modules that Pillow imports only when a file needs them.
LOADED_LATE = ("copy", "PIL.ImageCms", "PIL.ImageColor", "PIL.ImageFilter", "PIL.ImagePalette")


def prepare() -> None:
    """Load all code that the formats need, before memory is limited and opening files is forbidden."""
    for name in LOADED_LATE:
        importlib.import_module(name)
    Image.preinit()
    Image.init()
    for one in list(Image.OPEN):
        if one not in FORMATS:
            del Image.OPEN[one]
    Image.MAX_IMAGE_PIXELS = None  # _check_size() uses the request's limit instead
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    warnings.simplefilter("ignore")  # Pillow warns about odd metadata
    for name in FORMATS:
        file = io.BytesIO()
        Image.new("RGB", (2, 2)).save(file, name)
        decode(file.getvalue(), 4)


def decode(data: bytes, pixels_max: int) -> tuple[Pixels, bytes]:
    """Return the first frame as RGB pixels, rotated as its EXIF data says, without transparency. Raises
    UnreadableError."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            _check_size(image, pixels_max)
            upright = ImageOps.exif_transpose(image)
            pixels = _rgb(upright if upright is not None else image)
            return Pixels(*pixels.size), pixels.tobytes()
    except UnidentifiedImageError:
        raise UnreadableError(f"is none of {', '.join(FORMATS)}, or is broken at its beginning") from None
    except MemoryError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error) as error:
        raise UnreadableError(f"is broken: {error}") from None


def _check_size(image: Image.Image, pixels_max: int) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise UnreadableError("has no pixels")
    if width * height > pixels_max or max(width, height) > SIDE_MAX:
        raise UnreadableError(
            f"has {width} x {height} pixels; the limit is {pixels_max} pixels (--image-max-pixels) and"
            f" {SIDE_MAX} on a side"
        )


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits for each channel, which Pillow would clip
        deep = np.asarray(image).astype(np.uint32)
        return Image.fromarray((deep >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "RGBX", "RGBa"):
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")
