"""JSON Schema to GBNF: `to_grammar` returns a grammar for the JSON values that a schema allows.

Any thread, no state, bounded work: hostile schemas are rejected, never slow. Knows neither HTTP nor the engine.

Values are compact, or with one space after `:` and `,`, or indented; members come in the schema's order. What a
grammar cannot enforce is an error that names the keyword, or a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamad.chat.schema.convert import Converter
from llamad.chat.schema.errors import SchemaError

__all__ = ["SchemaError", "to_grammar", "to_rules"]


def to_grammar(schema: object, *, strict: bool = True) -> tuple[str, list[str]]:
    """GBNF text with the rule `root`, and a warning for every constraint that was dropped.

    Only with strict=False is anything dropped; a malformed schema is a SchemaError either way.
    """
    try:
        converter = Converter(schema, strict)
        return converter.grammar(), converter.report.warnings
    except RecursionError:  # the limits prevent it, unless the caller's own stack is nearly full
        raise SchemaError("#", "", "the schema is nested too deeply; flatten it") from None


def to_rules(
    schema: object, prefix: str, *, at: Sequence[str] = (), strict: bool = True
) -> tuple[dict[str, str], list[str]]:
    """Rules to put into a larger grammar, by name, and the warnings; the value is the rule `prefix`.

    Every other name begins with the prefix, except the built-in ones, which are the same for every schema. `at` is the
    path to a part of the schema; references are still resolved in the whole.
    """
    try:
        converter = Converter(schema, strict)
        return converter.named_rules(prefix, at), converter.report.warnings
    except RecursionError:
        raise SchemaError("#", "", "the schema is nested too deeply; flatten it") from None
