"""Lets a group declare its settings and their flags as the annotated attributes of a class.

Runs when a group is imported. Must not know any group.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import Choice, Kind, Switch

T = TypeVar("T")

_FROM_TYPE: Kind[Any] = Switch()  # replaced by the kind that follows from the setting's type


def flag(*, default: T, kind: Kind[T] = _FROM_TYPE, **rest: Any) -> T:
    """Declare a setting and its flag. The rest are fields of Flag.

    If no kind is given, it follows from the setting's type: a switch for a bool, a choice of words for a Literal.
    """
    declared: Any = Flag(default=default, kind=kind, **rest)
    setting: T = declared
    return setting


def flags_of(group: type, title: str) -> tuple[Flag, ...]:
    """Return the flags that a group declares, under a title of the help."""
    rows = []
    for dest in group.__annotations__:
        first: Flag = vars(group)[dest]
        for row in (first, *first.also):
            kind = _kind_of(group, dest) if row.kind is _FROM_TYPE else row.kind
            rows.append(replace(row, dest=dest, default=first.default, kind=kind, group=title, also=()))
    return tuple(rows)


def _kind_of(group: type, dest: str) -> Kind[Any]:
    if group.__annotations__[dest] == "bool":
        return Switch()
    hint = get_type_hints(group)[dest]
    words = hint if get_origin(hint) is Literal else get_args(hint)[0]  # of a Literal or None
    assert get_origin(words) is Literal
    return Choice(get_args(words))
