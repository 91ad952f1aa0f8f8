"""Chooses the projector that a model is served with, and makes the media reader for it."""

from __future__ import annotations

import logging
from glob import escape, glob
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llamad.base import model_file
from llamad.flags.settings import ModelSettings

if TYPE_CHECKING:
    from llamad.media.reader import MediaReader
    from llamad.protocol.blobs import Arena

log = logging.getLogger("llamad")

PATTERN = "mmproj*.gguf"
PACKAGES = {"PIL": "pillow", "soundfile": "soundfile", "soxr": "soxr"}  # modules that the decoders import
TOKENS_MAX = 1 << 20  # maximum tokens of one file; a prompt that is too long for its slot is refused later
DEFAULT_THREADS = 4


class ProjectorFileError(ValueError):
    """The projector cannot be used. str() is a sentence that names the flag."""


def with_projector(settings: ModelSettings) -> ModelSettings:
    """Return the settings with the path of the chosen projector. Only the first bytes of the file are checked. Raises
    ProjectorFileError."""
    path = settings.mmproj
    if settings.mmproj_auto is False:
        path = None
    elif path is None and settings.mmproj_auto:
        path = _beside(settings.model)
    if path is not None:
        reason = model_file.refusal(path, "--mmproj") or _missing_packages(path)
        if reason is not None:
            raise ProjectorFileError(reason)
        if settings.grp_attn_n > 1:
            raise ProjectorFileError(
                f"--grp-attn-n groups positions, which does not work with images; remove it, or do not use {path}"
            )
    return msgspec.structs.replace(settings, mmproj=path)


def _missing_packages(path: str) -> str | None:
    """Return what to install to decode images and sound, or None. A model without a projector needs none of it."""
    missing = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if not missing:
        return None
    names = " ".join(missing)
    return f"--mmproj {path} needs Python packages that are missing: pip install {names}, or start with --no-mmproj"


def _beside(model: str) -> str | None:
    folder = Path(model).parent
    files = sorted(glob(str(Path(escape(str(folder))) / PATTERN)))
    if len(files) == 1:
        return files[0]
    names = ", ".join(Path(one).name for one in files) or "none"
    log.warning("--mmproj-auto needs exactly one %s beside the model; there is: %s", PATTERN, names)
    return None


def make_reader(settings: ModelSettings, arena: Arena) -> MediaReader | None:
    """Return a new media reader, or None if the model reads only text."""
    if settings.mmproj is None:
        return None
    from llamad.media.messages import Open
    from llamad.media.reader import Limits, MediaReader

    projector = Open(
        model=settings.model,
        projector=settings.mmproj,
        n_threads=settings.n_threads_batch or settings.n_threads or DEFAULT_THREADS,
        uses_gpu=settings.mmproj_offload,
        device=settings.mmproj_device,
        image_min_tokens=-1 if settings.image_min_tokens is None else settings.image_min_tokens,
        image_max_tokens=-1 if settings.image_max_tokens is None else settings.image_max_tokens,
        flash_attn=settings.flash_attn,
    )
    limits = Limits(
        pixels_max=settings.image_max_pixels,
        seconds_max=settings.audio_max_seconds,
        tokens_max=TOKENS_MAX,
        cache_bytes=settings.media_cache_bytes,
    )
    return MediaReader(projector, limits, arena)
