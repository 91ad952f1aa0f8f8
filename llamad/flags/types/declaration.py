"""Lets a group declare its settings and their flags as the annotated attributes of a class.

Runs when a group is imported. Must not know any group.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec.structs import replace

from llamad.flags.types.flag import Flag, variable_of
from llamad.flags.types.kinds import Choice, Kind, Switch

T = TypeVar("T")

# Stand for what follows from the setting until flags_of replaces them.
_FROM_TYPE: Kind[Any] = Switch()
_FROM_NAME = ("",)


def flag(
    *,
    default: T,
    names: tuple[str, ...] = (),
    env: tuple[str, ...] = _FROM_NAME,
    kind: Kind[T] = _FROM_TYPE,
    **rest: Any,
) -> T:
    """Declare a setting and its flag. The rest are fields of Flag.

    Without names, the flag of port_max is --port-max. Without env, the variable of --port-max is LLAMA_ARG_PORT_MAX.
    If no kind is given, it follows from the setting's type: a switch for a bool, a choice of words for a Literal.
    """
    declared: Any = Flag(default=default, names=names, env=env, kind=kind, **rest)
    setting: T = declared
    return setting


def flags_of(group: type, title: str, *, reload: bool = False) -> tuple[Flag, ...]:
    """Return the flags that a group declares, under a title of the help; with `reload`, SIGHUP applies all of them."""
    rows = []
    for dest in group.__annotations__:
        first: Flag = vars(group)[dest]
        for row in (first, *first.also):
            names = row.names or (f"--{dest.replace('_', '-')}",)
            changes: dict[str, Any] = {
                "names": names,
                "default": first.default,
                "reload": reload or row.reload,
            }
            if row.env is _FROM_NAME:
                changes["env"] = (variable_of(names[-1]),)
            if row.kind is _FROM_TYPE:
                changes["kind"] = _kind_of(group, dest)
            rows.append(replace(row, dest=dest, group=title, also=(), **changes))
    return tuple(rows)


def _kind_of(group: type, dest: str) -> Kind[Any]:
    if group.__annotations__[dest] == "bool":
        return Switch()
    hint = get_type_hints(group)[dest]
    words = hint if get_origin(hint) is Literal else get_args(hint)[0]  # of a Literal or None
    assert get_origin(words) is Literal
    return Choice(get_args(words))
