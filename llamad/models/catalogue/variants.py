"""Decides which entries share an engine: those whose settings differ only in what the front uses. Pure functions.

An engine gets all settings but the defaults of requests. Some others are not read by it either, nor by the code that
starts it and talks to it: they are listed here. A test compares the list with the sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llamad.flags import engine_settings
from llamad.flags.settings import ModelSettings
from llamad.flags.table import TABLE
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


# Limits that a reload can change while the engine runs.
LIMITS = frozenset(
    flag.dest for flag in TABLE.settings if flag.reload and flag.dest in ModelSettings.__struct_fields__
)


def engine_key(settings: ModelSettings) -> tuple[Any, ...]:
    """Return a value that is equal for settings that one engine can serve."""
    return _values(settings, OF_REQUESTS)


def _values(settings: ModelSettings, ignored: frozenset[str]) -> tuple[Any, ...]:
    if not settings.is_remote:
        ignored = ignored | OF_DOWNLOADS
    return tuple(getattr(settings, name) for name in settings.__struct_fields__ if name not in ignored)


def own_settings(settings: ModelSettings) -> dict[str, Any]:
    """Return the settings in which a variant may differ from the others that share its engine."""
    return {name: getattr(settings, name) for name in settings.__struct_fields__ if name in OF_REQUESTS}


def same_engine(old: Entry, new: Entry) -> bool:
    """Return whether the engine of an entry can serve it after a reload, too. changed_limits() may have to be applied
    to it."""
    if old.settings is None or new.settings is None:
        return False
    ignored = OF_REQUESTS | LIMITS
    return _values(old.settings, ignored) == _values(new.settings, ignored)


def keeps_engine(old: Entry, new: Entry) -> bool:
    """Return whether a running engine can serve an entry after a reload. Another chat template may need special tokens
    that the engine does not show."""
    return same_engine(old, new) and template(old) == template(new)


def template(entry: Entry) -> tuple[Any, ...]:
    """Return the settings that say which chat template an entry uses."""
    settings = entry.settings
    return () if settings is None else (settings.chat_template, settings.chat_template_file, settings.jinja)


def changed_limits(old: ModelSettings, new: ModelSettings) -> dict[str, Any]:
    """Return the limits that a reload changes, by name, which Host.apply() takes."""
    values = {name: getattr(new, name) for name in sorted(LIMITS)}
    return {name: value for name, value in values.items() if value != getattr(old, name)}


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
