"""Flags: one table of everything the command line accepts, and the typed settings parsed from it."""

from llamad.flags.help import help_text, markdown_page, props
from llamad.flags.parse import FlagError, Parsed, parse
from llamad.flags.settings import Settings
from llamad.flags.types.flag import Action
from llamad.flags.types.values import KvOverride, Placement
from llamad.options.values import LogitBias

__all__ = [
    "Action",
    "FlagError",
    "KvOverride",
    "LogitBias",
    "Parsed",
    "Placement",
    "Settings",
    "help_text",
    "markdown_page",
    "parse",
    "props",
]
