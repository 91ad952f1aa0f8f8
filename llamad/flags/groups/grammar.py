"""The flags that constrain the output. Pure data; must not compute."""

from __future__ import annotations

from llamad.flags.types.declaration import flag, flags_of
from llamad.flags.types.kinds import File, Text


class Grammar:
    """Settings that constrain the output of requests without a constraint. At most one of them is given."""

    grammar: str | None = flag(
        kind=Text(),
        default=None,
        help="GBNF grammar for requests without one; only one of the four flags here may be given.",
    )
    grammar_file: str | None = flag(
        kind=File(),
        default=None,
        help="The same, from a file.",
    )
    json_schema: str | None = flag(
        names=("-j", "--json-schema"),
        kind=Text(),
        default=None,
        metavar="SCHEMA",
        help="JSON schema for requests with neither a schema nor a grammar; {}: any JSON object.",
    )
    json_schema_file: str | None = flag(
        names=("-jf", "--json-schema-file"),
        kind=File(),
        default=None,
        help="The same, from a file.",
    )


FLAGS = flags_of(Grammar, "Grammar")
