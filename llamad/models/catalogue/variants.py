"""Decides which entries share an engine: those whose settings differ only in what the front uses. Pure functions.

An engine gets all settings but the defaults of requests. Some others are not read by it either, nor by the code that
starts it and talks to it: they are listed here. A test compares the list with the sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llamad.flags import engine_settings
from llamad.flags.settings import ModelSettings
from llamad.models.catalogue.entry import Entry

# Settings that only the endpoints read.
OF_REQUESTS = frozenset(
    (
        *engine_settings.FRONT_ONLY,
        # names
        "aliases",
        "tags",
        # chats and prompts
        "chat_template",
        "chat_template_file",
        "chat_template_kwargs",
        "jinja",
        "prefill_assistant",
        "reasoning",
        "reasoning_budget",
        "reasoning_budget_message",
        "reasoning_effort",
        "reasoning_format",
        "reasoning_preserve",
        "skip_chat_parsing",
        "spm_infill",
        "system_prompt_field",
        "system_prompt_file",
        "system_prompt_shared",
        # defaults and limits of a request
        "answer_max_bytes",
        "context_shift",
        "embd_normalize",
        "escape",
        "grammar",
        "grammar_file",
        "inputs_max",
        "json_schema",
        "json_schema_file",
        "media_max_bytes",
        "media_path",
        "media_urls",
        "n_max",
        "n_predict_max",
        "n_probs_max",
        "prompts_max",
        "request_timeout",
        "stop_max",
    )
)
# Settings that say where the files come from. They do not matter once the paths are known.
OF_DOWNLOADS = frozenset(
    (
        "hf_file",
        "hf_repo",
        "hf_repo_draft",
        "hf_token",
        "mmproj_auto",
        "mmproj_url",
        "model_url",
        "offline",
    )
)


def engine_key(settings: ModelSettings) -> tuple[Any, ...]:
    """Return a value that is equal for settings that one engine can serve."""
    ignored = OF_REQUESTS if settings.is_remote else OF_REQUESTS | OF_DOWNLOADS
    return tuple(getattr(settings, name) for name in settings.__struct_fields__ if name not in ignored)


def own_settings(settings: ModelSettings) -> dict[str, Any]:
    """Return the settings in which a variant may differ from the others that share its engine."""
    return {name: getattr(settings, name) for name in settings.__struct_fields__ if name in OF_REQUESTS}


def same_engine(one: Entry, other: Entry) -> bool:
    """Return whether both entries can be served by one engine, for example the entry of a model before and after a
    reload."""
    if one.settings is None or other.settings is None:
        return False
    return engine_key(one.settings) == engine_key(other.settings)


def engines(entries: Iterable[Entry]) -> dict[str, str]:
    """Return for each entry the id of the first entry with the same engine."""
    firsts: dict[tuple[Any, ...], str] = {}
    ids = {}
    for entry in entries:
        if entry.settings is None:
            ids[entry.id] = entry.id
        else:
            ids[entry.id] = firsts.setdefault(engine_key(entry.settings), entry.id)
    return ids
