"""Several schemas as rules of one grammar."""

from __future__ import annotations

import pytest
from support.grammars.reference import Grammar

from llamad.chat.schema import SchemaError, to_rules

ROOT = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"type": "string"}, "root": {"enum": [1, 2]}},
    "required": ["a"],
    "$defs": {"a": {"type": "array", "items": {"type": "integer"}}},
}


def test_rules_are_prefixed_and_built_in_ones_shared() -> None:
    first, warnings = to_rules(ROOT, "first")
    second, _ = to_rules(
        {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}, "second"
    )
    assert warnings == []
    shared = first.keys() & second.keys()
    assert shared == {"space", "string", "char"}
    assert all(first[name] == second[name] for name in shared)
    assert all(name.startswith("first") for name in first.keys() - shared - {"integer"})
    lines = {"root": 'first "+" second', **first, **second}
    grammar = Grammar("".join(f"{name} ::= {body}\n" for name, body in lines.items()))
    assert grammar.accepts('{"a": [1], "b": "x", "root": 2}+{"b": "y"}')
    assert not grammar.accepts('{"a": [1]}+{"a": [1]}')


def test_a_part_of_a_schema_sees_the_whole() -> None:
    rules, _ = to_rules(ROOT, "part", at=("properties", "a"))
    lines = {"root": "part", **rules}
    grammar = Grammar("".join(f"{name} ::= {body}\n" for name, body in lines.items()))
    assert grammar.accepts("[1, 2]")
    assert not grammar.accepts('{"a": [1]}')


def test_errors() -> None:
    with pytest.raises(SchemaError):
        to_rules({"type": "object", "properties": {"a": False}, "required": ["a"]}, "x")
    with pytest.raises(SchemaError):
        to_rules({"type": 7}, "x")
