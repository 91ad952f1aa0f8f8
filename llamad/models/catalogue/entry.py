"""An entry of the catalogue: a model's names, its settings, or why it cannot be used. Pure data; any thread."""

from __future__ import annotations

from typing import Literal

import msgspec

from llamad.flags.settings import ModelSettings

Source = Literal["preset", "models_dir", "cache"]
STOP_SECONDS = 10  # llama-server's stop-timeout


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A model. `reason` says why it is disabled; then it has no settings. It is "" if the model can be used.

    Settings that name a model in the cache have the paths of its files, so that a load asks no hub. Only a model that
    is not there yet is remote (`settings.is_remote`) and is downloaded by its first load.
    """

    id: str
    source: Source
    settings: ModelSettings | None
    reason: str = ""
    aliases: tuple[str, ...] = ()  # sorted
    tags: tuple[str, ...] = ()  # sorted
    is_pinned: bool = False
    loads_on_startup: bool = False
    stop_timeout: int = STOP_SECONDS
    is_hidden: bool = False  # not listed, because a preset uses the same file; requests can name it
    engine: str = ""  # the id of the entry whose engine serves it, which may be its own
    args: tuple[str, ...] = ()  # its flags as a command line, without secrets
    preset: str = ""  # its flags as an INI section, without secrets
    warnings: tuple[str, ...] = ()
