"""Turns the table of options into the flags that set their defaults.

Runs once when the table of flags is built. Must not know a single option.
"""

from __future__ import annotations

from typing import Any

from llamad.flags.types.flag import Flag, variable_of
from llamad.flags.types.kinds import I32_MIN, Float, Int, Kind, Many, Switch, Text
from llamad.flags.types.sampling import Bias, SamplerNames
from llamad.options.option import FLOAT_MAX, INT32_MAX, Field
from llamad.options.table import FIELDS
from llamad.options.values import Biases, Samplers, SequenceBreakers

# For types with a kind of their own: the kind, more help about its syntax, and other fields of the flag.
_LISTS: dict[type, tuple[Kind[Any], str, dict[str, Any]]] = {
    Samplers: (SamplerNames(), "", {}),
    Biases: (
        Many(Bias()),
        "15043+1 makes a token more likely, 15043-inf forbids it. May be repeated.",
        {"repeat": True, "metavar": "TOKEN+BIAS"},
    ),
    SequenceBreakers: (
        Many(Text(), cut="", none="none"),
        "The first one replaces the defaults; none: no strings. May be repeated.",
        {"repeat": True, "escapes": True},
    ),
}


def option_flag(name: str, group: str, note: str = "") -> Flag:
    """Return the flag that sets an option's default. The note follows the option's help."""
    field = FIELDS[name]
    option = field.option
    assert option is not None
    kind, how, more = _LISTS.get(field.type) or (_kind(field), "", {})
    text = f"{option.help[0].upper()}{option.help[1:]}. {how or note}".rstrip()
    if option.metavar:
        more = more | {"metavar": option.metavar}
    return Flag(
        names=option.flags,
        off=option.off,
        env=(option.env or variable_of(option.flags[-1]),),
        dest=name,
        kind=kind,
        default=tuple(field.default) if isinstance(field.default, Biases) else field.default,
        default_shown=option.default,
        group=group,
        help=text,
        **more,
    )


def _kind(field: Field) -> Kind[Any]:
    if field.type is bool:
        return Switch()
    if field.type is int:
        low, high = field.low, field.high
        assert isinstance(low, int)
        assert isinstance(high, int)
        return Int(I32_MIN if low == -INT32_MAX else low, high)
    assert field.type is float
    low, high = (
        None if bound is None or abs(bound) == FLOAT_MAX else float(bound)
        for bound in (field.low, field.high)
    )
    return Float(low, high, None if field.above is None else float(field.above))
