"""Objects, arrays, combinations and references, one keyword at a time."""

from __future__ import annotations

from typing import Any

import pytest

from llamad.chat.schema import SchemaError, to_grammar

INT = {"type": "integer"}
TEXT = {"type": "string"}


def test_listed_properties_come_in_order(hold: Any) -> None:
    schema = {"type": "object", "properties": {"a": INT, "b": TEXT, "c": INT}, "required": ["b"]}
    yes = [{"a": 1, "b": "", "c": 2}, {"b": ""}, {"b": "", "c": 2}, {"a": 1, "b": ""}]
    no = [
        {},
        {"a": 1},
        {"b": "", "a": 1},
        {"b": "", "d": 1},
        {"b": 1},
        {"b": "", "b2": 1},
        b'{"b":"",}',
        b'{,"b":""}',
    ]
    hold(schema, yes, no)
    hold(
        {"type": "object", "properties": {"a": INT, "b": INT}},
        [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}],
        [{"c": 1}],
    )
    hold({"type": "object", "properties": {}}, [{}], [{"a": 1}])
    hold(
        {"type": "object", "properties": {"a": INT}, "required": ["a", "z"]}, [{"a": 1, "z": [2]}], [{"a": 1}]
    )


def test_blanks(hold: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": INT}, "b": INT},
        "required": ["a"],
    }
    good = [
        b'{"a": [1, 2], "b": 3}',
        b'{ "a":[ ] }',
        b'{\n  "a": [\n    1,\n    2\n  ],\n  "b": 3\n}',
        b'{\n\n\t"a":[]\n}',
    ]
    bad = [
        b' {"a":[]}',
        b'{"a":[]} ',
        b'{"a" :[]}',
        b'{"a":  []}',
        b'{"a":[1 ,2]}',
        b"{\n" + b" " * 21 + b'"a":[]}',
        b'{\n\n\n"a":[]}',
    ]
    hold(schema, good, bad)


def test_additional_properties(hold: Any) -> None:
    hold({"type": "object", "additionalProperties": INT}, [{}, {"x": 1}, {"x": 1, "y": 2}], [{"x": "1"}])
    hold({"type": "object", "additionalProperties": False}, [{}], [{"x": 1}])
    schema = {
        "type": "object",
        "properties": {"ab": INT, "é": INT, "": INT, 'q"\n': INT},
        "additionalProperties": TEXT,
    }
    yes = [
        {"ab": 1, "é": 2, "": 3, 'q"\n': 4, "a": "", "abc": "", "b": "", "éé": "", "\U0001f999": ""},
        {"a": ""},
        {"": 1},
    ]
    no = [
        {"ab": ""},
        {"é": ""},
        {"": ""},
        {'q"\n': ""},
        rb'{"\u0061b":""}',
        rb'{"a\u0062":""}',
        rb'{"\u00E9":""}',
        {"a": 1},
    ]
    hold(schema, yes, [*no, rb'{"q\u0022\n":""}', rb'{"q\"\u000a":""}', {"a": "", "ab": 1}])
    hold(
        {"type": "object", "properties": {"a": INT}, "required": ["a"], "additionalProperties": True},
        [{"a": 1, "b": [{}]}],
        [{}, {"b": 1}],
    )
    hold({"type": "object", "required": ["x"]}, [{"x": 1}, {"x": None, "y": 1}], [{}, {"y": 1}])


def test_pattern_properties(hold: Any) -> None:
    one = {"type": "object", "patternProperties": {"^x-": INT}}
    hold(one, [{}, {"x-": 1, "x-a": 2}], [{"x": 1}, {"x-": "1"}, {"ax-": 1}])
    hold({**one, "additionalProperties": TEXT}, [{"x-a": 1, "x": "", "": ""}], [{"x": 1}, {"x-a": ""}])
    hold(
        {**one, "properties": {"x-y": {"maximum": 3}, "z": TEXT}},
        [{"x-y": 3, "z": "", "x-z": 9}],
        [{"x-y": 4}, {"a": 1}],
    )
    two = {"type": "object", "patternProperties": {"^a": {"minimum": 5}, "z$": {"maximum": 7}}}
    two = {"allOf": [two, {"type": "object", "additionalProperties": INT}]}
    hold(two, [{"a": 9, "z": 1, "az": 6, "b": 100}], [{"az": 8}, {"az": 4}, {"a": 4}, {"z": 8}, {"b": ""}])


def test_property_names(hold: Any) -> None:
    hold(
        {"type": "object", "additionalProperties": INT, "propertyNames": {"enum": ["a", "b"]}},
        [{}, {"b": 1, "a": 2}],
        [{"c": 1}],
    )
    hold(
        {"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 2}},
        [{"ab": []}],
        [{"abc": 1}, {"": 1}, {"A": 1}],
    )
    hold(
        {"type": "object", "properties": {"aa": INT, "b": INT}, "propertyNames": {"maxLength": 1}},
        [{"b": 1}],
        [{"aa": 1}],
    )
    hold({"type": "object", "propertyNames": True}, [{"a": 1}])
    hold({"type": "object", "propertyNames": False}, [{}], [{"a": 1}])
    hold({"type": "object", "propertyNames": {"type": "string"}}, [{"a": 1}])


def test_counts_of_properties(hold: Any) -> None:
    three = {"type": "object", "properties": {"a": INT, "b": INT, "c": INT}}
    every = [
        {},
        {"a": 1},
        {"b": 1},
        {"c": 1},
        {"a": 1, "b": 1},
        {"a": 1, "c": 1},
        {"b": 1, "c": 1},
        {"a": 1, "b": 1, "c": 1},
    ]
    for least in range(4):
        for most in range(least, 5):
            fits = [value for value in every if least <= len(value) <= most]
            hold(
                {**three, "minProperties": least, "maxProperties": most},
                fits,
                [v for v in every if v not in fits],
            )
    hold(
        {"type": "object", "minProperties": 1, "maxProperties": 2},
        [{"a": 1}, {"a": 1, "b": 1}],
        [{}, {"a": 1, "b": 1, "c": 1}],
    )
    hold(
        {**three, "required": ["b"], "additionalProperties": INT, "minProperties": 2},
        [{"b": 1, "x": 1}, {"a": 1, "b": 1}],
        [{"b": 1}, {}],
    )
    hold(
        {**three, "additionalProperties": INT, "maxProperties": 2},
        [{"x": 1, "y": 1}, {"a": 1, "x": 1}],
        [{"a": 1, "b": 1, "x": 1}],
    )
    hold({"type": "object", "maxProperties": 0}, [{}], [{"a": 1}])


def test_unevaluated(hold: Any) -> None:
    base = {"type": "object", "allOf": [{"properties": {"a": INT}}], "properties": {"b": INT}}
    hold({**base, "unevaluatedProperties": False}, [{"a": 1, "b": 2}], [{"c": 1}])
    hold({**base, "unevaluatedProperties": TEXT}, [{"a": 1, "b": 2, "c": ""}], [{"c": 1}])
    hold({"type": "array", "prefixItems": [INT], "unevaluatedItems": False}, [[], [1]], [[1, 2]])


def test_arrays(hold: Any) -> None:
    hold({"type": "array", "items": INT}, [[], [1], [1, 2, 3]], [["a"], b"[1,]", b"[,1]"])
    hold(
        {"type": "array", "items": INT, "minItems": 2, "maxItems": 3},
        [[1, 2], [1, 2, 3]],
        [[], [1], [1, 2, 3, 4]],
    )
    hold({"type": "array", "maxItems": 0}, [[]], [[1]])
    hold({"type": "array", "items": False}, [[]], [[1]])
    hold({"type": "array", "minItems": 1.0}, [[1]], [[]])
    hold({"type": "array", "uniqueItems": True, "maxItems": 1}, [[], [1]], [[1, 2]])
    hold({"type": "array", "uniqueItems": False, "contains": INT, "minContains": 0}, [[], ["a", "a"]])


def test_listed_elements_that_are_unique(hold: Any) -> None:
    unique = {"type": "array", "uniqueItems": True}
    colours = {"enum": ["red", "blue", 1, 1.0, {"a": []}]}  # two of them are equal
    hold(
        {**unique, "items": colours},
        [[], ["blue"], ["blue", "red"], [{"a": []}, 1, "red", "blue"]],
        [["red", "red"], [1, "red", 1.0], ["red", "blue", "red"], ["green"], [{"a": []}, {"a": []}]],
    )
    hold({**unique, "items": colours, "minItems": 3}, [["red", 1, "blue"]], [["red", 1], ["red", 1, 1]])
    hold({**unique, "items": colours, "maxItems": 2}, [[1, "red"]], [[1, "red", "blue"]])
    hold({**unique, "items": {"anyOf": [{"const": 1}, {"enum": [2, 1]}]}}, [[2, 1]], [[1, 1]])
    hold({**unique, "items": {"$ref": "#/$defs/c"}, "$defs": {"c": {"enum": [1, 2]}}}, [[2, 1]], [[2, 2]])
    hold({**unique, "items": {"enum": [1, "a"], "type": "integer"}}, [[], [1]], [["a"], [1, 1]])
    hold({**unique, "items": {"enum": [1, 2], "nullable": True}}, [[None, 1]], [[None, None]])
    hold({**unique, "items": {"enum": list(range(40))}, "maxItems": 2}, [[39, 0]], [[39, 39], [1, 2, 3]])
    with pytest.raises(SchemaError, match="no JSON value"):
        to_grammar({**unique, "items": {"enum": [1, 2]}, "minItems": 3})


@pytest.mark.parametrize(
    "items",
    [{"enum": list(range(11))}, INT, {"anyOf": [{"const": 1}, INT]}, {"anyOf": [{"$ref": "#/items"}, INT]}],
)
def test_elements_that_a_grammar_cannot_compare(items: Any) -> None:
    with pytest.raises(SchemaError, match="uniqueItems at #"):
        to_grammar({"type": "array", "uniqueItems": True, "items": items})


@pytest.mark.parametrize("first", ["prefixItems", "items"])
def test_tuples(hold: Any, first: str) -> None:
    rest = "items" if first == "prefixItems" else "additionalItems"
    two = {"type": "array", first: [INT, TEXT]}
    hold(two, [[], [1], [1, ""], [1, "", None, {}]], [[""], [1, 2]])
    hold({**two, rest: False}, [[], [1], [1, ""]], [[1, "", 1]])
    hold({**two, rest: {"type": "null"}}, [[1, "", None, None]], [[1, "", 1]])
    hold({**two, "minItems": 2, "maxItems": 2}, [[1, ""]], [[], [1], [1, "", 1]])
    hold({**two, "minItems": 3, rest: INT}, [[1, "", 1], [1, "", 1, 2]], [[1, ""]])
    hold({**two, "maxItems": 1}, [[], [1]], [[1, ""]])
    hold({"type": "array", first: [INT, False, INT]}, [[], [1]], [[1, 1]])
    hold({"type": "array", first: [INT] * 30}, [[1] * n for n in range(33)], [[1] * 29 + [""]])


def test_any_of_and_one_of(hold: Any) -> None:
    for keyword in ("anyOf", "oneOf"):
        hold({keyword: [INT, TEXT]}, [1, "a"], [None])
        hold({keyword: [INT, False]}, [1], ["a"])
        beside = {"type": "object", "properties": {"k": TEXT}, "required": ["k"]}
        schema = {
            **beside,
            keyword: [{"properties": {"a": INT}}, {"properties": {"b": INT}, "required": ["b"]}],
        }
        hold(schema, [{"k": ""}, {"k": "", "a": 1}, {"k": "", "b": 1}], [{"k": "", "a": 1, "b": 1}, {"a": 1}])
        hold({"type": "integer", keyword: [{"maximum": 3}, {"minimum": 9}]}, [3, 9], [4, 8])
    both = {
        "anyOf": [{"minimum": 3}, {"maximum": -3}],
        "oneOf": [{"maximum": 5}, {"minimum": 90}],
        "type": "integer",
    }
    hold(both, [3, 5, 90, -3, -9], [6, 0, 89])


def test_all_of(hold: Any) -> None:
    hold({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, [1], ["a", None])
    hold({"allOf": [{"type": "number"}, INT, {"minimum": 2}, {"maximum": 4}]}, [2, 4], [1, 5, 2.5])
    parts = [{"type": "object", "properties": {"a": INT}, "required": ["a"]}, {"properties": {"b": INT}}]
    hold({"allOf": parts}, [{"a": 1}, {"a": 1, "b": 2}], [{"b": 2}, {"a": 1, "c": 1}])
    hold(
        {"allOf": parts, "properties": {"a": {"maximum": 3}, "c": TEXT}},
        [{"a": 3, "b": 1, "c": ""}],
        [{"a": 4}],
    )
    hold({"allOf": [*parts, {"additionalProperties": INT}]}, [{"a": 1, "b": 1, "z": 1}], [{"a": 1, "z": ""}])
    shut = {"type": "object", "properties": {"a": INT}, "additionalProperties": False}
    hold({"allOf": [shut, {"properties": {"b": INT}}]}, [{"a": 1}, {}], [{"b": 1}])
    hold(
        {"allOf": [{"type": "array", "prefixItems": [INT]}, {"items": {**INT, "minimum": 5}}]},
        [[5], [7, 9]],
        [[1], [""]],
    )
    hold(
        {"allOf": [{"minItems": 2}, {"type": "array", "maxItems": 3, "minItems": 1}]},
        [[1, 1]],
        [[1], [1] * 4],
    )
    hold({"allOf": [{"anyOf": [INT, TEXT]}, {"anyOf": [TEXT, {"type": "null"}]}]}, ["a"], [1, None])


def test_references(hold: Any) -> None:
    defs = {
        "a/b": INT,
        "m~n": TEXT,
        "p%q": {"type": "null"},
        "anchored": {"$anchor": "here", "type": "boolean"},
    }
    cases: list[tuple[str, list[Any], list[Any]]] = [
        ("#/$defs/a~1b", [1], [""]),
        ("#/$defs/m~0n", [""], [1]),
        ("#/$defs/p%25q", [None], [1]),
        ("#here", [True], [1]),
        ("#/properties/x/items/1", [2.5], [""]),
        ("http://example.com/s#/$defs/a~1b", [1], [""]),
    ]
    for ref, yes, no in cases:
        root = {
            "$id": "http://example.com/s",
            "$defs": defs,
            "properties": {"x": {"items": [True, {"type": "number"}]}},
        }
        hold({**root, "type": "array", "items": {"$ref": ref}}, [[v] for v in yes], [[v] for v in no])
    hold(
        {"$ref": "#/definitions/n", "maximum": 5, "definitions": {"n": {"type": "integer", "minimum": 3}}},
        [3, 5],
        [2, 6],
    )
    hold({"definitions": {"old": {"id": "#old", "type": "null"}}, "items": {"$ref": "#old"}}, [[None]], [[1]])


def test_recursion(hold: Any) -> None:
    tree = {
        "type": "object",
        "properties": {"v": INT, "below": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["v"],
    }
    hold(
        tree,
        [{"v": 1}, {"v": 1, "below": [{"v": 2, "below": [{"v": 3}]}, {"v": 4}]}],
        [{"v": 1, "below": [{}]}],
    )
    entry = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"]}
    schema = {"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [{"type": "null"}, entry]}}}
    hold(schema, [None, {"next": None}, {"next": {"next": {"next": None}}}], [{}, {"next": 1}])
    both = {"allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/y"}], "$defs": {}}
    for name, key in (("x", "a"), ("y", "b")):
        kids = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}
        both["$defs"][name] = {"type": "object", "properties": {key: INT, "kids": kids}, "required": [key]}
    hold(
        both,
        [{"a": 1, "kids": [{"a": 1, "kids": [], "b": 2}], "b": 2}],
        [{"a": 1, "kids": [{"a": 1}], "b": 2}],
    )


def test_what_cannot_be_completed_is_left_out(hold: Any) -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}}, "required": ["next"]}
    schema = {
        "type": "object",
        "properties": {"a": INT, "b": {"$ref": "#/$defs/endless"}},
        "$defs": {"endless": endless},
    }
    hold(schema, [{}, {"a": 1}], [{"b": {}}])
    with pytest.raises(SchemaError, match="no JSON value can satisfy"):
        to_grammar({**schema, "required": ["b"]})
    for never in (
        False,
        {"not": {}},
        {"allOf": [INT, TEXT]},
        {"allOf": [{"const": 1}, {"const": 2}]},
        {"enum": [1], "type": "null"},
    ):
        with pytest.raises(SchemaError, match="no JSON value can satisfy"):
            to_grammar(never)
        hold({"anyOf": [never, {"type": "boolean"}]}, [True], [1])
