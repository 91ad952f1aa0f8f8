"""Writes an entry's settings as clients of llama-server read them: as a command line, and as an INI section.

Pure functions. Must not show a secret: such flags are left out. File paths stay, so only key holders may see the
result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from llamad.flags.parse import Setting
from llamad.flags.types.kinds import Switch

PROGRAM = "llamad"
_NOT_IN_PRESET = ("aliases", "tags")  # they have fields of their own


def args(model_id: str, settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the command line: the program, then the flags in llama-server's order. The alias is the model's id."""
    line = [PROGRAM, "--alias", model_id]
    for one in _shown(settings):
        if one.flag.dest == "aliases":
            continue
        if not isinstance(one.flag.kind, Switch):
            line += [one.flag.title, *one.texts]
        elif one.value == one.flag.kind.on and one.flag.names:
            line.append(one.flag.names[-1])
        elif one.value != one.flag.kind.on and one.flag.off:
            line.append(one.flag.off[-1])
    return tuple(line)


def preset(model_id: str, settings: Iterable[Setting], keys: Mapping[str, Any]) -> str:
    """Return the INI section. `keys` are those that exist only in presets."""
    lines = [f"{key} = {_text(value)}" for key, value in sorted(keys.items())]
    for one in _shown(settings):
        if one.flag.dest in _NOT_IN_PRESET:
            continue
        # A switch that was given without a value has none of its own.
        text = ":".join(one.texts) or ("1" if one.value == getattr(one.flag.kind, "on", None) else "0")
        lines.append(f"{one.flag.title.lstrip('-')} = {_one_line(text)}")
    return "\n".join((f"[{model_id}]", *lines, ""))


def _shown(settings: Iterable[Setting]) -> list[Setting]:
    public = (one for one in settings if not one.flag.secret)
    return sorted(public, key=lambda one: (one.flag.names or one.flag.off)[0])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _one_line(text: str) -> str:
    """Return a text with its line breaks as escapes, because an INI file cannot have them."""
    return text.replace("\r", "\\r").replace("\n", "\\n")
