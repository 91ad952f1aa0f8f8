"""Owns the flags that constrain the output. Pure data; must not compute."""

from __future__ import annotations

from functools import partial

from llamad.flags.flag import Flag, Later
from llamad.flags.kinds import File, Text

flag = partial(Flag, group="Grammar")

GRAMMARS = Later("grammars")
SCHEMAS = Later("JSON schemas")

FLAGS: tuple[Flag, ...] = (
    flag(names=("--grammar",), dest="grammar", kind=Text(), default=None, status=GRAMMARS),
    flag(names=("--grammar-file",), dest="grammar_file", kind=File(), default=None, status=GRAMMARS),
    flag(names=("-j", "--json-schema"), dest="json_schema", kind=Text(), default=None, status=SCHEMAS),
    flag(
        names=("-jf", "--json-schema-file"),
        dest="json_schema_file",
        kind=File(),
        default=None,
        status=SCHEMAS,
    ),
)
