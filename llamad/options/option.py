"""Owns an option's metadata beside its type and default: its help, its flag, whether it is echoed.

Pure data, read from any thread. Must not know the table, the flags or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta

INT32_MAX = 2**31 - 1
FLOAT_MAX = 3e38  # a little less than a 32-bit float can hold
LEFT_OUT = -(2**31)  # outside every range: marks an integer that was not given


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a field of Options. Range and default are the field's own."""

    section: str  # of docs/options.md
    help: str  # without a capital or a full stop
    note: str = ""  # more help, for the page only
    values: str = ""  # "type and range" of the page, if the field's type does not say it
    default: str = ""  # the default on the page, if the value does not say it
    flags: tuple[
        str, ...
    ] = ()  # every spelling of the flag that sets the default; the one to show is the last
    off: tuple[str, ...] = ()  # every spelling of a switch's negation
    env: str = ""
    metavar: str = ""
    see: tuple[str, ...] = ()  # related flags
    echo: bool = True  # in generation_settings, under its name and its aliases


class Alias(msgspec.Struct, frozen=True):
    """Metadata of a field that is an alias of an option."""

    of: str


class Field(msgspec.Struct, frozen=True):
    """One field of a struct: its type without annotations, and what these say."""

    name: str
    type: Any
    default: Any  # NODEFAULT: required
    low: float | None  # inclusive
    high: float | None  # inclusive
    above: float | None  # exclusive lower bound
    description: str  # of msgspec.Meta
    option: Option | None
    alias: Alias | None


@cache
def fields_of(struct: type[msgspec.Struct]) -> Mapping[str, Field]:
    """The fields of a struct in order."""
    hints = get_type_hints(struct, include_extras=True)
    defaults = defaults_of(struct)
    names = (one.name for one in msgspec.structs.fields(struct))
    return MappingProxyType(
        {name: _field(name, hints[name], defaults.get(name, NODEFAULT)) for name in names}
    )


def defaults_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The defaults of the fields that have one."""
    found = {}
    for one in msgspec.structs.fields(struct):
        if not one.required:
            found[one.name] = one.default if one.default is not NODEFAULT else one.default_factory()
    return found


def _field(name: str, hint: Any, default: Any) -> Field:
    type, *annotations = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    found: dict[str, Any] = dict.fromkeys(("low", "high", "above", "option", "alias"))
    found["description"] = ""
    for one in annotations:
        if isinstance(one, Meta):
            limits = {"low": one.ge, "high": one.le, "above": one.gt, "description": one.description}
            found |= {key: value for key, value in limits.items() if value is not None}
        elif isinstance(one, Option):
            found["option"] = one
        elif isinstance(one, Alias):
            found["alias"] = one
    return Field(name, type, default, **found)
