"""The metadata of an option besides its type and default: its help, its flag, whether it is echoed.

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
    """Metadata of a field of Options. The range and the default are in the field itself."""

    section: str  # the section of docs/options.md
    help: str  # begins with a small letter and has no full stop at its end
    note: str = ""  # more help, only for docs/options.md
    values: str = ""  # the type and range in docs/options.md, if they do not follow from the field's type
    default: str = ""  # the default in docs/options.md, if it does not follow from the value
    flags: tuple[str, ...] = ()  # every spelling of the flag that sets the default; the last one is shown
    off: tuple[str, ...] = ()  # every spelling of a switch's negation
    env: str = ""  # the variable, if it does not follow from the last flag
    metavar: str = ""
    see: tuple[str, ...] = ()  # related flags
    echo: bool = True  # generation_settings has it, under its name and its aliases


class Alias(msgspec.Struct, frozen=True):
    """Metadata of a field that is an alias of an option."""

    of: str


class Field(msgspec.Struct, frozen=True):
    """One field of a struct: its type without annotations, and the values of these."""

    name: str  # in JSON
    attribute: str  # in the struct; the same unless the name has a dot
    type: Any
    default: Any  # NODEFAULT: required
    low: float | None  # inclusive
    high: float | None  # inclusive
    above: float | None  # exclusive lower bound
    description: str  # from msgspec.Meta
    option: Option | None
    alias: Alias | None


@cache
def fields_of(struct: type[msgspec.Struct]) -> Mapping[str, Field]:
    """Return the fields of a struct in order, by their names in JSON."""
    hints = get_type_hints(struct, include_extras=True)
    defaults = defaults_of(struct)
    names = {one.encode_name: one.name for one in msgspec.structs.fields(struct)}
    return MappingProxyType(
        {name: _field(name, own, hints[own], defaults.get(own, NODEFAULT)) for name, own in names.items()}
    )


def defaults_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the defaults of the fields that have one."""
    defaults = {}
    for one in msgspec.structs.fields(struct):
        if not one.required:
            defaults[one.name] = one.default if one.default is not NODEFAULT else one.default_factory()
    return defaults


def _field(name: str, attribute: str, hint: Any, default: Any) -> Field:
    type, *annotations = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    values: dict[str, Any] = dict.fromkeys(("low", "high", "above", "option", "alias"))
    values["description"] = ""
    for one in annotations:
        if isinstance(one, Meta):
            limits = {"low": one.ge, "high": one.le, "above": one.gt, "description": one.description}
            values |= {key: value for key, value in limits.items() if value is not None}
        elif isinstance(one, Option):
            values["option"] = one
        elif isinstance(one, Alias):
            values["alias"] = one
    return Field(name, attribute, type, default, **values)
