"""Schemas to draw, and instances in the order of a schema: what the property tests of llamad.chat.schema share."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from llamad.chat.schema.check import same

NAMES = st.sampled_from(
    ["a", "b", "ab", "abc", "", "na me", 'q"uote', "back\\slash", "é", "🦙", "line\nend", "/", "x-1"]
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
# \d, \w and the dot mean more characters to Python than to ECMAScript: the examples have them.
PATTERNS = st.sampled_from(
    [
        "^[a-c]{1,3}$",
        "^(?:ab|a)(?P<tail>c*)$",
        "b",
        "^b",
        "b$",
        "^$",
        "^a|b$",
        "^[^a-y]+?$",
        "^[0-9]{2,}-[A-Za-z0-9_.]{0,2}$",
        "^(?:a?b?)*$",
        "^é\\u00e9\\x41\\/$",
        '^["\\\\\\n]{2}$',
        "(?:^|x)a",
        "^(a|b)(c|)$",
        "[a-c]{2}[0-9]",
        "^[^\\n]{2}$",
    ]
)


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return {"type": "string", "pattern": draw(PATTERNS)}
    if kind == 1:
        return {"type": "string", "format": draw(st.sampled_from(["date", "time", "date-time", "uuid"]))}
    least = draw(st.integers(0, 3))
    schema: dict[str, Any] = {"type": "string"}
    if draw(st.booleans()):
        schema["minLength"] = least
    if draw(st.booleans()):
        schema["maxLength"] = least + draw(st.integers(0, 3))
    return schema


@st.composite
def integers(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    low = draw(st.one_of(st.integers(-1200, 1200), st.integers(-(10**20), 10**20)))
    high = low + draw(st.integers(0, 2000))
    kind = draw(st.integers(0, 5))
    if kind in (1, 3):
        schema["minimum"] = low
    if kind in (2, 3):
        schema["maximum"] = high
    if kind == 4:
        schema |= {"exclusiveMinimum": low - 1, "maximum": high}
    if kind == 5:
        schema |= {"minimum": low, "exclusiveMaximum": high + 1}
    return schema


CONSTANTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 99), st.sampled_from([0.5, 1e300, -2.25]), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=3,
)
SCALARS = st.one_of(
    strings(),
    integers(),
    st.sampled_from(
        [{"type": "number"}, {"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}]
    ),
    st.builds(lambda values: {"enum": values}, st.lists(CONSTANTS, min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, CONSTANTS),
)


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array"}
        if draw(st.booleans()):
            schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=3))
        if draw(st.booleans()):
            schema["items"] = draw(st.one_of(inner, st.just(False)))
        closed = len(schema.get("prefixItems", ())) if schema.get("items") is False else 2
        least = draw(st.integers(0, closed))
        if draw(st.booleans()):
            schema["minItems"] = least
        if draw(st.booleans()):
            schema["maxItems"] = least + draw(st.integers(0, 2))
        return schema

    return build()


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        properties = draw(st.dictionaries(NAMES, inner, max_size=4))
        schema: dict[str, Any] = {"type": "object"}
        if properties:
            schema["properties"] = properties
            schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True, max_size=2))
        if draw(st.booleans()):
            schema["additionalProperties"] = draw(st.one_of(st.booleans(), inner))
        if draw(st.integers(0, 4)) == 0:
            schema["maxProperties"] = len(schema.get("required", ())) + draw(st.integers(0, 2))
        if draw(st.integers(0, 4)) == 0 and (properties or schema.get("additionalProperties", True)):
            schema["minProperties"] = min(1, schema.get("maxProperties", 1))
        return schema

    return build()


SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        arrays(inner),
        objects(inner),
        st.builds(lambda options: {"anyOf": options}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def closed(schema: Any) -> Any:
    """The same with `additionalProperties: false` written out where its absence means it here."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict) or "const" in schema or "enum" in schema:
        return schema
    copy = {key: closed(value) for key, value in schema.items()}
    if isinstance(copy.get("properties"), dict):
        copy["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        if schema.get("type") == "object":
            copy.setdefault("additionalProperties", False)
    return copy


def in_order(schema: Any, value: Any) -> Any:
    """The value with its members in the order of the schema; the schema has neither $ref nor allOf."""
    if not isinstance(schema, dict):
        return value
    if "const" in schema or "enum" in schema:
        return next(given for given in schema.get("enum", [schema.get("const")]) if same(given, value))
    if "anyOf" in schema:
        fits = next(option for option in schema["anyOf"] if Draft202012Validator(option).is_valid(value))
        return in_order(fits, value)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        rest = schema.get("items", True)
        return [in_order(first[i] if i < len(first) else rest, item) for i, item in enumerate(value)]
    if isinstance(value, dict):
        listed = schema.get("properties", {})
        names = [name for name in listed if name in value] + [name for name in value if name not in listed]
        return {
            name: in_order(listed.get(name, schema.get("additionalProperties", True)), value[name])
            for name in names
        }
    return value


def compact(value: Any) -> list[str]:
    return [json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only) for ascii_only in (True, False)]
