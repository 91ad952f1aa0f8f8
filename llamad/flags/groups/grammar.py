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
        help="A GBNF grammar for every request that brings none; of the four flags here only one may be given.",
    ),
    flag(
        names=("--grammar-file",),
        env=("LLAMA_ARG_GRAMMAR_FILE",),
        dest="grammar_file",
        kind=File(optional=True),
        default=None,
        help="The same, read from a file.",
    ),
    flag(
        names=("-j", "--json-schema"),
        env=("LLAMA_ARG_JSON_SCHEMA",),
        dest="json_schema",
        kind=Text(optional=True),
        default=None,
        metavar="SCHEMA",
        help="A JSON schema for every request that brings neither a schema nor a grammar; {} is any JSON.",
    ),
    flag(
        names=("-jf", "--json-schema-file"),
        env=("LLAMA_ARG_JSON_SCHEMA_FILE",),
        dest="json_schema_file",
        kind=File(optional=True),
        default=None,
        help="The same, read from a file.",
    ),
)
