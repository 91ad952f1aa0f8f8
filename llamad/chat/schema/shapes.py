"""The required form of each keyword's value. A schema that violates it is malformed, strict or not.

Any thread; pure. A well-formed keyword may still be impossible to honour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llamad.chat.schema.errors import SchemaError

TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})

Test = Callable[[Any], bool]


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    return is_number(value) and value == int(value)  # type: ignore[call-overload]


def _count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def _schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _schemas(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_schema, value))


def _named(value: object) -> bool:
    return isinstance(value, dict) and all(map(_schema, value.values()))


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _types(value: object) -> bool:
    kinds = value if isinstance(value, list) else [value]
    return bool(kinds) and all(isinstance(kind, str) and kind in TYPES for kind in kinds)


def _dependencies(value: object) -> bool:
    return isinstance(value, dict) and all(_schema(item) or _texts(item) for item in value.values())


def _is(*kinds: type) -> Test:
    return lambda value: isinstance(value, kinds)


_A_SCHEMA = (_schema, "must be a schema: an object, true or false")
_SCHEMAS = (_schemas, "must be a non-empty list of schemas")
_NAMED = (_named, "must be an object whose values are schemas")
_COUNT = (_count, "must be an integer, 0 or more")
_NUMBER = (is_number, "must be a number")
_TEXT = (_is(str), "must be a string")
_FLAG = (_is(bool), "must be true or false")

SHAPES: Mapping[str, tuple[Test, str]] = {
    "$ref": _TEXT,
    "additionalItems": _A_SCHEMA,
    "additionalProperties": _A_SCHEMA,
    "allOf": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "contains": _A_SCHEMA,
    "dependencies": (_dependencies, "must be an object whose values are schemas or lists of names"),
    "dependentRequired": (
        lambda value: isinstance(value, dict) and all(map(_texts, value.values())),
        "must be an object whose values are lists of names",
    ),
    "dependentSchemas": _NAMED,
    "else": _A_SCHEMA,
    "enum": (lambda value: isinstance(value, list) and bool(value), "must be a non-empty list"),
    "exclusiveMaximum": (lambda value: is_number(value) or isinstance(value, bool), "must be a number"),
    "exclusiveMinimum": (lambda value: is_number(value) or isinstance(value, bool), "must be a number"),
    "format": _TEXT,
    "if": _A_SCHEMA,
    "items": (
        lambda value: _schema(value) or (isinstance(value, list) and all(map(_schema, value))),
        "must be a schema or a list of schemas",
    ),
    "maxContains": _COUNT,
    "maxItems": _COUNT,
    "maxLength": _COUNT,
    "maxProperties": _COUNT,
    "maximum": _NUMBER,
    "minContains": _COUNT,
    "minItems": _COUNT,
    "minLength": _COUNT,
    "minProperties": _COUNT,
    "minimum": _NUMBER,
    "multipleOf": (lambda value: is_number(value) and value > 0, "must be a number above 0"),
    "not": _A_SCHEMA,
    "nullable": _FLAG,
    "oneOf": _SCHEMAS,
    "pattern": _TEXT,
    "patternProperties": _NAMED,
    "prefixItems": _SCHEMAS,
    "properties": _NAMED,
    "propertyNames": _A_SCHEMA,
    "required": (_texts, "must be a list of property names"),
    "then": _A_SCHEMA,
    "type": (_types, "must be null, boolean, integer, number, string, array, object or a list of these"),
    "unevaluatedItems": _A_SCHEMA,
    "unevaluatedProperties": _A_SCHEMA,
    "uniqueItems": _FLAG,
}

_PAIRS = (
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minimum", "maximum"),
)


def check_shapes(pointer: str, schema: Any) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise SchemaError(pointer, "", "a schema must be an object, true or false")
    for keyword, value in schema.items():
        if keyword in SHAPES:
            fits, reason = SHAPES[keyword]
            if not fits(value):
                raise SchemaError(pointer, keyword, reason)
    for least, most in _PAIRS:
        if least in schema and most in schema and schema[least] > schema[most]:
            raise SchemaError(pointer, least, f"{schema[least]} is above {most}, {schema[most]}")
    for bound, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(schema.get(bound), bool) and schema[bound] and plain not in schema:
            raise SchemaError(pointer, bound, f"must be a number, or true beside {plain}")
    if isinstance(schema.get("items"), list) and "prefixItems" in schema:
        raise SchemaError(pointer, "items", "must be a schema if prefixItems is given")
