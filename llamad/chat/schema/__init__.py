"""JSON Schema to GBNF: `to_grammar` returns a grammar for the JSON values that a schema allows.

Any thread, no state. The work is bounded: hostile schemas are rejected, never slow. Knows neither HTTP nor the engine.

Values are compact, or have one space after `:` and `,`, or are indented; members come in the schema's order. A
constraint that a grammar cannot enforce is an error that names the keyword, or a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamad.chat.schema.convert import Converter
from llamad.chat.schema.errors import SchemaError

__all__ = ["SchemaError", "to_grammar", "to_rules"]


def to_grammar(schema: object, *, strict: bool = True) -> tuple[str, list[str]]:
    """Return GBNF text with the rule `root`, and a warning for every constraint that was dropped.

    Constraints are dropped only with strict=False. A malformed schema is a SchemaError either way.
    """
    try:
        converter = Converter(schema, strict)
        return converter.grammar(), converter.report.warnings
    except RecursionError:  # the limits prevent it, unless the caller's own stack is nearly full
        raise SchemaError("#", "", "the schema is nested too deeply; flatten it") from None


def to_rules(
    schema: object, prefix: str, *, at: Sequence[str] = (), strict: bool = True
) -> tuple[dict[str, str], list[str]]:
    """Return rules for a larger grammar, by name, and the warnings; the rule of the value is named `prefix`.

    Every other name begins with the prefix, except the built-in ones, which are the same for every schema. `at` is the
    path to a subschema; references are still resolved in the whole schema.
    """
    try:
        converter = Converter(schema, strict)
        return converter.named_rules(prefix, at), converter.report.warnings
    except RecursionError:
        raise SchemaError("#", "", "the schema is nested too deeply; flatten it") from None
