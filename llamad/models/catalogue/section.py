"""Turns the keys of a preset's section into settings. Pure functions; any thread. Must not read files.

A key is a flag without its dashes, or the name of its variable. Some keys exist only in presets. Settings of the daemon
are not for a model: they are left out, with a warning.
"""

from __future__ import annotations

import difflib
from typing import Any

import msgspec

from llamad.flags.parse import FlagError, Setting, read_setting, scan
from llamad.flags.settings import DaemonSettings
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Action, Flag, Preset, Request
from llamad.flags.types.kinds import Int, Kind, Switch
from llamad.models.catalogue.ini import EVERY_MODEL, Section

DEFAULT_MODEL = "default-model"
_IGNORED = "version"  # reserved by llama-server
_YES_NO = Switch()

# The keys that are not flags.
PRESET_KEYS: dict[str, Kind[Any]] = {
    "load-on-startup": _YES_NO,
    "stop-timeout": Int(low=0),
    "dedup-cache-models": _YES_NO,
    "pin": _YES_NO,
}

_BY_KEY: dict[str, tuple[Flag, bool]] = {
    **TABLE.by_env,
    **{name.lstrip("-"): entry for name, entry in TABLE.by_name.items()},
}

# Settings by dest; an empty tuple only removes those of lower layers, as the key of a list without a value does.
Layer = dict[str, tuple[Setting, ...]]


class SectionSettings(msgspec.Struct, frozen=True):
    """The settings of a section, without its wrong keys, which `errors` names."""

    layer: Layer
    keys: dict[str, Any]  # of PRESET_KEYS
    default_model: str
    warnings: list[str]
    errors: list[str]


NO_SETTINGS = SectionSettings({}, {}, "", [], [])


def read(section: Section) -> SectionSettings:
    """Return the settings of a section."""
    result = SectionSettings({}, {}, "", [], [])
    implied: Layer = {}  # from flags that stand for others; keys of the section take precedence
    for key, value in section.values.items():
        source = f"{key} (line {value.line})"
        try:
            if key == _IGNORED:
                pass
            elif key in PRESET_KEYS:
                result.keys[key] = _preset_key(key, source, value.text)
            elif key == DEFAULT_MODEL:
                result = msgspec.structs.replace(result, default_model=_default(section, source, value.text))
            elif key in _BY_KEY and isinstance(_BY_KEY[key][0].kind, Preset):
                implied |= _stands_for(_BY_KEY[key][0].kind, source) if _is_on(source, value.text) else {}
            else:
                _add(result, source, _flag(key, source, value.text, result.warnings))
        except FlagError as error:
            result.errors.append(str(error))
    if section.name == EVERY_MODEL:
        result.errors.extend(
            f"{one.source}: a name belongs to one model; give it in that model's section"
            for one in result.layer.get("aliases", ())
        )
    return msgspec.structs.replace(result, layer={**implied, **result.layer})


def _add(result: SectionSettings, source: str, settings: Layer) -> None:
    """Add the settings of a key. The later of two keys for the same setting wins, but lists are joined."""
    for dest, values in settings.items():
        others = {one.source for one in result.layer.get(dest, ())}
        if others and not all(one.flag.repeat for one in values):
            result.warnings.append(f"{min(others)} is ignored: {source} is the same setting")
            result.layer.pop(dest)
        result.layer[dest] = (*result.layer.get(dest, ()), *values)


def _default(section: Section, source: str, text: str) -> str:
    if section.name != EVERY_MODEL:
        raise FlagError(f"{source}: it belongs into [{EVERY_MODEL}], because there is one default")
    return text


def _preset_key(key: str, source: str, text: str) -> Any:
    try:
        return PRESET_KEYS[key].read(text)
    except ValueError as error:
        raise FlagError(f"{source}: {error}") from None


def _flag(key: str, source: str, text: str, warnings: list[str]) -> Layer:
    entry = _BY_KEY.get(key)
    if entry is None:
        near = difflib.get_close_matches(key, [*_BY_KEY, *PRESET_KEYS], n=1, cutoff=0.6)
        raise FlagError(
            f"{source}: there is no such flag; {f'did you mean {near[0]}?' if near else 'see --help'}"
        )
    flag, is_negated = entry
    if isinstance(flag.kind, Request):
        raise FlagError(f"{source}: it is not a setting of a model; leave it out")
    if flag.dest in DaemonSettings.__struct_fields__:
        warnings.append(
            f"{source} is ignored: it is for the whole daemon; use {flag.title} on the command line"
        )
        return {}
    if isinstance(flag.kind, Switch):
        value = flag.kind.on if _is_on(source, text) != is_negated else flag.kind.off
        setting = Setting(flag, source, value, ("true" if value == flag.kind.on else "false",))
        return {flag.dest: () if value is None else (setting,)}
    if not text and flag.repeat:
        return {flag.dest: ()}
    if not text and flag.bare is not None:
        text = flag.bare
    one = read_setting(flag, source, [text], is_negated)
    assert one is not None
    return {flag.dest: (one,)}


def _is_on(source: str, text: str) -> bool:
    """Return the value of a switch; a key without a value turns it on."""
    try:
        return not text or bool(_YES_NO.read(text))
    except ValueError as error:
        raise FlagError(f"{source}: {error}") from None


def _stands_for(kind: Kind[Any], source: str) -> Layer:
    """Return the settings of a model for which a flag stands."""
    assert isinstance(kind, Preset)
    settings = scan(kind.arguments, TABLE)
    assert not isinstance(settings, Action)
    return {
        one.flag.dest: (msgspec.structs.replace(one, source=source),)
        for one in settings
        if one.flag.dest not in DaemonSettings.__struct_fields__
    }
