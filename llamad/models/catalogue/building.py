"""Builds an entry from the layers of settings that apply to a model. Any thread; looks at the model's files.

Every rule about flags is in the parser: this module only says which settings it gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from llamad.base.printable import printable
from llamad.flags.parse import MODEL_SOURCES, OF_ONE_MODEL, FlagError, Parsed, Setting, settle
from llamad.flags.settings import DaemonSettings, ModelSettings
from llamad.flags.table import TABLE
from llamad.models import local_files
from llamad.models.catalogue import shown
from llamad.models.catalogue.entry import STOP_SECONDS, Entry, Source
from llamad.models.catalogue.ini import EVERY_MODEL, UNNAMED
from llamad.models.catalogue.section import NO_SETTINGS, Layer, SectionSettings
from llamad.models.model_download import with_files
from llamad.models.projector import ProjectorFileError, with_projector
from llamad.protocol.errors import LoadError

_OF_MODEL = (*MODEL_SOURCES, "hf_file")
_NO_MODEL = "there is no model in its section: set model, hf-repo or model-url"
_FOR_ALL = f"; keys for all models belong below [{EVERY_MODEL}]"
_FLAGS = {flag.dest: flag for flag in TABLE.settings}


class Draft(msgspec.Struct, frozen=True):
    """A model before its settings are put together. `layers` are its own, the last one with the most weight."""

    id: str
    source: Source
    layers: list[Layer]
    settings: SectionSettings = NO_SETTINGS
    reason: str = ""


class Shared:
    """The settings that apply to all models: of the command line and the environment, and of the section [*]."""

    def __init__(self, parsed: Parsed, common: SectionSettings, environ: Mapping[str, str]) -> None:
        *below, above = (_layer(one) for one in parsed.layers)
        self.below: list[Layer] = [*below, common.layer]
        self.above: Layer = above
        self.common = common
        self.environ = environ
        self.warnings = frozenset(parsed.warnings)  # the daemon has already logged them


def _layer(settings: tuple[Setting, ...]) -> Layer:
    """Return the settings by dest, without those that cannot be for all models."""
    layer: Layer = {}
    for one in settings:
        if one.flag.dest not in OF_ONE_MODEL:
            layer[one.flag.dest] = (*layer.get(one.flag.dest, ()), one)
    return layer


def layer_of(**texts: str) -> Layer:
    """Return a layer with the values of some dests, which are paths and names."""
    return {dest: (Setting(_FLAGS[dest], _FLAGS[dest].title, text, (text,)),) for dest, text in texts.items()}


def build(draft: Draft, shared: Shared) -> Entry:
    """Return the entry of a model. Nothing is raised: what is wrong is its reason."""
    layers = _overridden([*shared.below, *draft.layers, shared.above])
    keys = {**shared.common.keys, **draft.settings.keys}
    visible = _of_model(layers[len(shared.below) - 1 :])  # not what the environment says
    entry = Entry(
        id=draft.id,
        source=draft.source,
        settings=None,
        reason=draft.reason,
        aliases=_names(layers, "aliases", draft.id),
        tags=_names(layers, "tags"),
        is_pinned=keys.get("pin", False),
        loads_on_startup=keys.get("load-on-startup", False),
        stop_timeout=keys.get("stop-timeout", STOP_SECONDS),
        args=shown.args(draft.id, visible),
        preset=shown.preset(draft.id, visible, keys),
        warnings=tuple(draft.settings.warnings),
    )
    if draft.reason:
        return entry
    warnings: list[str] = []
    try:
        settings = _settings(entry, layers, shared.environ, warnings)
    except (FlagError, LoadError, ProjectorFileError) as error:
        return msgspec.structs.replace(entry, reason=printable(str(error)))
    fresh = [printable(one) for one in warnings if one not in shared.warnings]
    return msgspec.structs.replace(entry, settings=settings, warnings=(*entry.warnings, *fresh))


def _overridden(layers: list[Layer]) -> list[Layer]:
    """Return the layers without settings that a later one overrides. A layer that names a model replaces the model of
    the layers before, however they name it."""
    taken: set[str] = set()
    result: list[Layer] = []
    for layer in reversed(layers):
        result.append({dest: one for dest, one in layer.items() if dest not in taken})
        taken |= layer.keys()
        if not taken.isdisjoint(MODEL_SOURCES):
            taken |= set(_OF_MODEL)
    return result[::-1]


def _of_model(layers: list[Layer]) -> list[Setting]:
    """Return the settings in the layers that are for a model."""
    settings = (one for layer in layers for same in layer.values() for one in same)
    return [one for one in settings if one.flag.dest not in DaemonSettings.__struct_fields__]


def _names(layers: list[Layer], dest: str, own: str = "") -> tuple[str, ...]:
    """Return the aliases or tags, sorted, without the model's own name."""
    values: set[str] = {name for layer in layers for one in layer.get(dest, ()) for name in one.value}
    return tuple(sorted(values - {own}))


def _settings(
    entry: Entry, layers: list[Layer], environ: Mapping[str, str], warnings: list[str]
) -> ModelSettings:
    """Return the settings of a model whose files are there or can be downloaded. Raises FlagError, LoadError,
    ProjectorFileError."""
    parsed = settle([[one for same in layer.values() for one in same] for layer in layers], warnings)
    if parsed.given.isdisjoint(MODEL_SOURCES):
        raise FlagError(_NO_MODEL + (_FOR_ALL if entry.id == UNNAMED else ""))
    settings = msgspec.structs.replace(parsed.settings.model, aliases=(entry.id, *entry.aliases))
    settings = _from_cache(settings, environ)
    reason = local_files.refusal(settings)
    if reason is not None:
        raise LoadError(reason)
    return settings if settings.is_remote else with_projector(settings)


def _from_cache(settings: ModelSettings, environ: Mapping[str, str]) -> ModelSettings:
    """Return the settings with the paths of the files in the cache, unless one must be downloaded first. Raises
    LoadError if that is not allowed."""
    # Files of an address are checked for changes whenever they are loaded, so they stay remote.
    if not settings.is_remote or settings.model_url is not None or settings.mmproj_url is not None:
        return settings
    try:
        local = with_files(settings, environ, is_offline=True)
    except LoadError:
        if settings.offline:
            raise
        return settings
    nowhere: dict[str, Any] = dict.fromkeys(("hf_repo", "hf_file", "hf_repo_draft"))
    return msgspec.structs.replace(local, **nowhere)
