"""Checks the files on this machine that a model's settings name, before an engine is started for it. Any thread."""

from __future__ import annotations

from llamad.base import model_file
from llamad.flags.settings import ModelSettings


def refusal(settings: ModelSettings) -> str | None:
    """Return why a file that the settings name cannot be used, or None. Files that will be downloaded are not checked,
    and the projector has checks of its own."""
    is_local = settings.hf_repo is None and settings.model_url is None
    named = [
        *([("-m", settings.model)] if is_local else []),
        *([("-md", settings.model_draft)] if settings.model_draft is not None else []),
        *(("--lora", one.path) for one in settings.lora),
        *(("--control-vector", one.path) for one in settings.control_vector),
    ]
    reasons = (model_file.refusal(path, flag) for flag, path in named)
    return next((reason for reason in reasons if reason is not None), None)
