"""Owns what the table looks like to people: the help, the README's table, and what /props publishes.

Runs on the main thread, `props` on the event loop too. Must not publish a secret.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

from llamad.flags.settings import Settings
from llamad.flags.table import TABLE
from llamad.flags.types.flag import Flag, Inert, Later, Request
from llamad.flags.types.kinds import Choice, Switch
from llamad.flags.types.special import Inverse
from llamad.flags.types.values import LogitBias

_INDENT = 6


def help_text(width: int = 80) -> str:
    """The whole help, no line longer than `width` where words allow it."""
    width = max(width, 40)
    lines = [
        *textwrap.wrap("Usage: llamad -m MODEL.gguf [flags]", width),
        "",
        *textwrap.wrap(
            "Flags take their value as the next argument or after '='. A variable in brackets sets the same; "
            "the flag wins over it.",
            width,
        ),
    ]
    for title, flags in TABLE.groups().items():
        lines += ["", f"{title}:"]
        for flag in flags:
            lines += _entry(flag, width)
    for title, kind in (
        ("Known, but not available in this version", Later),
        ("Accepted without effect", Inert),
    ):
        names = [flag.title for flag in TABLE.flags if isinstance(flag.status, kind)]
        lines += ["", f"{title}:"]
        lines += textwrap.wrap(
            ", ".join(names),
            width,
            initial_indent="  ",
            subsequent_indent="  ",
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "\n".join(lines) + "\n"


def _entry(flag: Flag, width: int) -> list[str]:
    notes = []
    default = default_text(flag)
    if default:
        notes.append(f"default {default}")
    limits = flag.kind.limits()
    if limits and not _names_its_choices(flag):
        notes.append(f"one of {limits}" if isinstance(flag.kind, Choice) else limits)
    text = f"{flag.help} ({'; '.join(notes)})" if notes else flag.help
    if flag.env:
        text += f" [{flag.env[0]}]"
    indent = " " * _INDENT
    body = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [f"  {spellings(flag)}", *body]


def spellings(flag: Flag) -> str:
    """All names of a flag with its value: "-c, --ctx-size N"."""
    names = ", ".join(flag.names)
    if flag.shown_metavar:
        names += f" {flag.shown_metavar}"
    return f"{names} | {', '.join(flag.off)}" if flag.off else names


def _names_its_choices(flag: Flag) -> bool:
    return isinstance(flag.kind, Choice) and "|" in flag.metavar


def default_text(flag: Flag) -> str:
    """The default as a user would write it; empty where there is none to write."""
    if isinstance(flag.kind, Request | Inverse) or flag.default in (None, "", ()):
        return ""
    if isinstance(flag.kind, Switch):
        # A switch among several for one setting is described by the setting's own flag.
        return flag.kind.write(flag.default) if isinstance(flag.default, bool) else ""
    if isinstance(flag.default, tuple):
        items = (item.encode("unicode_escape").decode() for item in flag.default)
        return " ".join(items) if flag.escapes else flag.kind.write(flag.default)
    if isinstance(flag.default, float):
        return f"{flag.default:g}"
    return str(flag.default)


def markdown_table() -> str:
    """The flags that work as Markdown, a table for each group, then the names of the others."""
    parts: list[str] = []
    for title, flags in TABLE.groups().items():
        rows = ["| flag | variable | default | meaning |", "| --- | --- | --- | --- |"]
        rows += [f"| {' | '.join(_cells(flag))} |" for flag in flags]
        parts += [f"### {title}", "\n".join(rows)]
    for title, kind in (("Known, but not available yet", Later), ("Accepted without effect", Inert)):
        names = [f"`{flag.title}`" for flag in TABLE.flags if isinstance(flag.status, kind)]
        parts += [f"### {title}", textwrap.fill(", ".join(names), 110, break_on_hyphens=False)]
    return "\n\n".join(parts) + "\n"


def _cells(flag: Flag) -> list[str]:
    names = " ".join(f"`{name}`" for name in flag.names + flag.off)
    if flag.shown_metavar:
        names += f" {flag.shown_metavar}"
    default = default_text(flag)
    limits = flag.kind.limits()
    text = flag.help
    if limits and not _names_its_choices(flag):
        text += f" ({limits})"
    cells = [names, f"`{flag.env[0]}`" if flag.env else "", f"`{default}`" if default else "", text]
    return [cell.replace("|", "\\|") for cell in cells]


def props(settings: Settings) -> dict[str, Any]:
    """The settings as JSON values, without anything secret."""
    return {flag.dest: _json(getattr(settings, flag.dest)) for flag in TABLE.settings if not flag.secret}


def _json(value: Any) -> Any:
    if isinstance(value, LogitBias):
        # As requests write it: a pair, and false for "never".
        return [value.token, False if value.bias == -math.inf else value.bias]
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    return value
