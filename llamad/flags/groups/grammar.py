"""Owns the flags that constrain the output. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.types.flag import Flag
from llamad.flags.types.kinds import File, Text

flag = partial(Flag, group="Grammar")

FLAGS: tuple[Flag, ...] = (
    flag(
        names=("--grammar",),
        env=("LLAMA_ARG_GRAMMAR",),
        dest="grammar",
        kind=Text(optional=True),
        default=None,
        help="GBNF grammar for requests without one; only one of the four flags here may be given.",
    ),
    flag(
        names=("--grammar-file",),
        env=("LLAMA_ARG_GRAMMAR_FILE",),
        dest="grammar_file",
        kind=File(optional=True),
        default=None,
        help="The same, from a file.",
    ),
    flag(
        names=("-j", "--json-schema"),
        env=("LLAMA_ARG_JSON_SCHEMA",),
        dest="json_schema",
        kind=Text(optional=True),
        default=None,
        metavar="SCHEMA",
        help="JSON schema for requests with neither a schema nor a grammar; {}: any JSON object.",
    ),
    flag(
        names=("-jf", "--json-schema-file"),
        env=("LLAMA_ARG_JSON_SCHEMA_FILE",),
        dest="json_schema_file",
        kind=File(optional=True),
        default=None,
        help="The same, from a file.",
    ),
)
