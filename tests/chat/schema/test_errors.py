"""What is refused, by which keyword and where; what strict=False makes of it; and that nothing takes long."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from support.grammars.reference import Grammar

from llamad.chat.schema import SchemaError, to_grammar
from llamad.chat.schema.errors import Report

INT = {"type": "integer"}

CANNOT: list[tuple[Any, str, str]] = [
    ({"type": "integer", "multipleOf": 997}, "multipleOf", "#"),
    ({"type": "number", "multipleOf": 0.0003}, "multipleOf", "#"),
    ({"type": "number", "minimum": 1e-99}, "minimum", "#"),
    ({"type": "number", "exclusiveMaximum": 1e99}, "exclusiveMaximum", "#"),
    ({"maximum": 1e99}, "maximum", "#"),
    ({"type": "integer", "maximum": 1e70}, "maximum", "#"),
    ({"type": "integer", "format": "int7"}, "format", "#"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems", "#"),
    ({"type": "array", "contains": INT}, "contains", "#"),
    ({"type": "array", "maxItems": 100_001}, "maxItems", "#"),
    ({"type": "string", "format": "idn-email"}, "format", "#"),
    ({"type": "string", "maxLength": 100_001}, "maxLength", "#"),
    ({"type": "string", "pattern": "^(?=a)a|b$"}, "pattern", "#"),
    ({"type": "string", "pattern": "a(?!b)"}, "pattern", "#"),
    ({"type": "string", "pattern": "(?<=a)b"}, "pattern", "#"),
    ({"type": "string", "pattern": "(?<!a)b"}, "pattern", "#"),
    ({"type": "string", "pattern": "(a)\\1"}, "pattern", "#"),
    ({"type": "string", "pattern": "(?<x>a)\\k<x>"}, "pattern", "#"),
    ({"type": "string", "pattern": "\\bword\\b"}, "pattern", "#"),
    ({"type": "string", "pattern": "\\p{L}+"}, "pattern", "#"),
    ({"type": "string", "pattern": "(?i:a)"}, "pattern", "#"),
    ({"type": "string", "pattern": "a{100001}"}, "pattern", "#"),
    ({"type": "string", "pattern": "a{1000000000000000}"}, "pattern", "#"),
    ({"type": "string", "pattern": "(" * 100 + ")" * 100}, "pattern", "#"),
    ({"type": "string", "pattern": "a" * 20_000}, "pattern", "#"),
    ({"type": "string", "pattern": "^([ab][cd]){0,9000}$", "minLength": 7}, "minLength", "#"),
    (
        {"type": "string", "allOf": [{"pattern": "^[ab]{9000}"}, {"pattern": "b.{3000}$"}]},
        "pattern",
        "#/allOf/1",
    ),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired", "#"),
    ({"type": "object", "dependentSchemas": {"a": INT}}, "dependentSchemas", "#"),
    ({"type": "object", "dependencies": {"a": ["b"]}}, "dependencies", "#"),
    ({"type": "object", "minProperties": 2}, "minProperties", "#"),
    ({"type": "object", "maxProperties": 100_001}, "maxProperties", "#"),
    (
        {"type": "object", "propertyNames": {"anyOf": [{"minLength": 3}, {"maxLength": 1}]}},
        "propertyNames",
        "#",
    ),
    ({"type": "object", "propertyNames": {"not": {"const": "a"}}}, "propertyNames", "#"),
    ({"type": "object", "patternProperties": {f"{i}$": True for i in range(5)}}, "patternProperties", "#"),
    ({"type": "object", "patternProperties": {"(?=a)": True}}, "patternProperties", "#"),
    ({"type": "object", "patternProperties": {"a.{20}b.{20}c": True}}, "patternProperties", "#"),
    ({"type": "string", "not": {"const": "a"}}, "not", "#"),
    ({"type": "string", "if": {"minLength": 1}, "then": {"maxLength": 2}}, "if", "#"),
    ({"$ref": "https://example.com/other.json"}, "$ref", "#"),
    ({"$ref": "other.json#/definitions/a"}, "$ref", "#"),
    ({"$dynamicRef": "#a"}, "$dynamicRef", "#"),
    ({"$recursiveRef": "#"}, "$recursiveRef", "#"),
    (
        {"anyOf": [{"unevaluatedProperties": False, "type": "object"}], "required": ["a"]},
        "unevaluatedProperties",
        "#/anyOf/0",
    ),
    ({"enum": ["a"], "format": "idn-email"}, "format", "#"),
    (
        {"properties": {"a/b": {"items": {"type": "number", "maximum": 1e99}}}},
        "maximum",
        "#/properties/a~1b/items",
    ),
    ({"anyOf": [INT, {"type": "array", "uniqueItems": True}]}, "uniqueItems", "#/anyOf/1"),
    ({"allOf": [{"type": "number"}, {"minimum": 1e99}]}, "minimum", "#/allOf/1"),
]


@pytest.mark.parametrize(("schema", "keyword", "pointer"), CANNOT)
def test_what_cannot_be_honoured(schema: Any, keyword: str, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        to_grammar(schema)
    error = caught.value
    assert (error.keyword, error.pointer) == (keyword, pointer)
    assert str(error).startswith(f"{keyword} at {pointer}: ")
    assert "\n" not in str(error)
    text, warnings = to_grammar(schema, strict=False)
    Grammar(text)
    assert any(warning.startswith(f"{keyword} at {pointer}: ") for warning in warnings)
    assert all("\n" not in warning for warning in warnings)


MALFORMED: list[tuple[Any, str, str]] = [
    (3, "", "#"),
    (None, "", "#"),
    ("string", "", "#"),
    ([], "", "#"),
    ({"type": "text"}, "type", "#"),
    ({"type": []}, "type", "#"),
    ({"type": [{}]}, "type", "#"),
    ({"type": 5}, "type", "#"),
    ({"properties": []}, "properties", "#"),
    ({"properties": {"a": 3}}, "properties", "#"),
    ({"properties": {"a": {"type": "no"}}}, "type", "#/properties/a"),
    ({"required": "a"}, "required", "#"),
    ({"required": [1]}, "required", "#"),
    ({"additionalProperties": "no"}, "additionalProperties", "#"),
    ({"patternProperties": {"(": {}}}, "patternProperties", "#"),
    ({"items": 3}, "items", "#"),
    ({"items": [3]}, "items", "#"),
    ({"items": [{}], "prefixItems": [{}]}, "items", "#"),
    ({"prefixItems": {}}, "prefixItems", "#"),
    ({"minItems": -1}, "minItems", "#"),
    ({"minItems": 1.5}, "minItems", "#"),
    ({"minItems": True}, "minItems", "#"),
    ({"minItems": 3, "maxItems": 2}, "minItems", "#"),
    ({"minLength": 3, "maxLength": 2}, "minLength", "#"),
    ({"minLength": "3"}, "minLength", "#"),
    ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum", "#"),
    ({"type": "integer", "minimum": "3"}, "minimum", "#"),
    ({"type": "integer", "exclusiveMinimum": True}, "exclusiveMinimum", "#"),
    ({"type": "integer", "exclusiveMaximum": "3"}, "exclusiveMaximum", "#"),
    ({"multipleOf": 0}, "multipleOf", "#"),
    ({"minProperties": 3, "maxProperties": 2}, "minProperties", "#"),
    ({"enum": []}, "enum", "#"),
    ({"enum": {}}, "enum", "#"),
    ({"anyOf": []}, "anyOf", "#"),
    ({"oneOf": {}}, "oneOf", "#"),
    ({"allOf": [1]}, "allOf", "#"),
    ({"not": 1}, "not", "#"),
    ({"format": 1}, "format", "#"),
    ({"pattern": 1}, "pattern", "#"),
    ({"nullable": "yes"}, "nullable", "#"),
    ({"uniqueItems": 1}, "uniqueItems", "#"),
    ({"dependentRequired": {"a": "b"}}, "dependentRequired", "#"),
    ({"$ref": 3}, "$ref", "#"),
    ({"$ref": "#/$defs/none"}, "$ref", "#"),
    ({"$ref": "#none"}, "$ref", "#"),
    ({"$ref": "#/enum/1", "enum": [{}]}, "$ref", "#"),
    ({"$ref": "#/required/0", "required": ["a"]}, "$ref", "#"),
    ({"$ref": "#/%ff"}, "$ref", "#"),
    ({"$ref": "#"}, "$ref", "#"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        "$ref",
        "#/$defs/a",
    ),
    ({"anyOf": [{"$ref": "#"}, INT]}, "anyOf", "#"),
    ({"type": "object", "anyOf": [{"$ref": "#"}, {"required": ["a"]}]}, "anyOf", "#"),
    ({"enum": [1], "not": {"anyOf": [{"$ref": "#/not"}]}}, "enum", "#/not/anyOf/0"),
    *(
        ({"type": "string", "pattern": pattern}, "pattern", "#")
        for pattern in [
            "(",
            ")",
            "[",
            "[b-a]",
            "*",
            "a**",
            "a{3,2}",
            "\\",
            "\\q",
            "^*",
            "\\ud83d",
            "\\u{110000}",
            "{2}",
            "[a",
        ]
    ),
    ({"const": "\ud800"}, "", "#"),
    ({"properties": {"\udfff": True}}, "", "#"),
    ({"const": float("nan")}, "", "#"),
    ({"const": 10**5000}, "", "#"),
    ({"const": b"bytes"}, "", "#"),
    ({1: 2}, "", "#"),
    ({"const": json.loads("[" * 100 + "]" * 100)}, "const", "#"),
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("schema", "keyword", "pointer"), MALFORMED)
def test_what_is_malformed(schema: Any, keyword: str, pointer: str, strict: bool) -> None:
    with pytest.raises(SchemaError) as caught:
        to_grammar(schema, strict=strict)
    assert (caught.value.keyword, caught.value.pointer) == (keyword, pointer)
    assert pointer in str(caught.value)
    assert keyword in str(caught.value)


def test_a_message_is_one_line_whatever_the_keys() -> None:
    with pytest.raises(SchemaError) as caught:
        to_grammar({"properties": {"a\nb\u2028" + "x" * 5000: {"type": "no"}}})
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_keywords_of_other_types_are_no_matter() -> None:
    beside = {
        "multipleOf": 2,
        "uniqueItems": True,
        "minProperties": 5,
        "contains": {},
        "minimum": 3,
        "title": "x",
    }
    text, warnings = to_grammar(
        {"type": "string", **beside, "x-own": 1, "discriminator": {"propertyName": "k"}}
    )
    assert Grammar(text).accepts('"a"')
    assert warnings == []


def test_only_the_dropped_constraint_is_dropped() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "number", "minimum": 1e-99}, "s": {"type": "string", "maxLength": 2}},
    }
    text, warnings = to_grammar(schema, strict=False)
    assert warnings == [w for w in warnings if w.startswith("minimum at #/properties/n: ")]
    assert len(warnings) == 1
    assert Grammar(text).accepts('{"n":-5.5,"s":"ab"}')
    assert not Grammar(text).accepts('{"s":"abc"}')


def nested(depth: int, around: Any) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = around(schema)
    return schema


AROUND = {
    "items": lambda below: {"type": "array", "items": below},
    "properties": lambda below: {"type": "object", "properties": {"a": below}},
    "allOf": lambda below: {"allOf": [below]},
    "anyOf": lambda below: {"anyOf": [below, {"type": "integer"}], "title": "t"},
    "not": lambda below: {"not": below, "enum": [1, None]},
    "propertyNames": lambda below: {"propertyNames": below},
}


@pytest.mark.parametrize("around", AROUND)
def test_depth(around: str) -> None:
    for depth in (60, 150, 199):
        schema = nested(depth, AROUND[around])
        if around == "not" and depth > 60:
            with pytest.raises(SchemaError, match="nested too deeply"):
                to_grammar(schema, strict=False)
        else:
            assert Grammar(to_grammar(schema, strict=False)[0])
    for depth in (500, 100_000):
        with pytest.raises(SchemaError, match="nested deeper"):
            to_grammar(nested(depth, AROUND[around]))


def test_a_schema_that_holds_itself() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    with pytest.raises(SchemaError, match="nested deeper"):
        to_grammar(schema)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("beside", [{}, {"minimum": 3}])
def test_a_fan_of_references_is_linear(keyword: str, beside: dict[str, Any]) -> None:
    defs: dict[str, Any] = {"d30": {"type": "integer", "maximum": 7}}
    for i in range(30):
        defs[f"d{i}"] = {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}], **beside}
    text, _ = to_grammar({"$ref": "#/$defs/d0", "$defs": defs})
    assert len(text) < 5000
    assert Grammar(text).accepts("5")


def test_a_long_chain_of_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Report, "MOST_SECONDS", 60.0)  # its work is limited, too
    defs = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(2000)} | {"d2000": {"type": "null"}}
    assert to_grammar({"$ref": "#/$defs/d0", "$defs": defs})[0] == 'root ::= "null"\n'
    defs |= {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}], "title": "t"} for i in range(2000)}
    assert to_grammar({"$ref": "#/$defs/d0", "$defs": defs})[0] == 'root ::= "null"\n'
    defs |= {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(2000)}
    assert Grammar(to_grammar({"$ref": "#/$defs/d0", "$defs": defs})[0])


def test_many_optional_properties_grow_the_grammar_linearly() -> None:
    def size(count: int, extra: dict[str, Any]) -> int:
        listed = {f"property{i:04}": {"type": "integer", "maximum": i} for i in range(count)}
        return len(to_grammar({"type": "object", "properties": listed, **extra})[0])

    for extra in ({}, {"additionalProperties": True}, {"required": ["property0099"]}, {"minProperties": 1}):
        assert size(300, extra) < 4 * size(100, extra)
        assert size(100, extra) < 60_000


def product(parts: int, width: int) -> Any:
    choices = [
        {"anyOf": [{"properties": {f"p{i}": {"const": j}}} for j in range(width)]} for i in range(parts)
    ]
    return {"type": "object", "allOf": choices}


HOSTILE = {
    "product of choices": product(9, 9),
    "many rules": {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer", "maximum": i} for i in range(21_000)},
    },
    "long names": {"type": "object", "properties": {"x" * 3_000_000: INT, "y" * 3_000_000: INT}},
    "long values": {"enum": [str(i) * 200_000 for i in range(10, 50)]},
    "values sifted again and again": {
        "allOf": [{"enum": list(range(20_000))}, {"enum": list(range(19_000, 40_000))}]
    },
    "exponential pattern": {"type": "string", "pattern": "(a|b)*a(a|b){300}c"},
    "nested counts": {"type": "string", "pattern": "^(((a{0,99}b){0,99}c){0,99}d){0,99}$", "maxLength": 3000},
    "many patterns": {"type": "string", "allOf": [{"pattern": f"{c}.{{5}}{c}"} for c in "abcdefgh"]},
    "counted properties": {
        "type": "object",
        "properties": {f"p{i}": INT for i in range(2000)},
        "maxProperties": 1000,
    },
    "names of one letter more": {
        "type": "object",
        "properties": {"a" * i: INT for i in range(2000)},
        "additionalProperties": True,
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_end(name: str) -> None:
    """Either way is fine, as long as it comes to an end and the limits hold."""
    depth = sys.getrecursionlimit()
    for strict in (True, False):
        try:
            text, _ = to_grammar(HOSTILE[name], strict=strict)
        except SchemaError:
            continue
        assert len(text) <= 4_000_000
        assert text.count("\n") <= 20_000
    assert sys.getrecursionlimit() == depth
