"""Values that fit a JSON schema, chosen at random by walking the schema itself, not through any grammar engine.

A value counts only if the package `jsonschema` finds it valid. Members come in the schema's order, and only those
that the schema names, because most engines write them so.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from jsonschema import validators

WORDS = "the name of a long river where Grüße meet 日本 and some café tables stand in the morning sun".split()
DEPTH_MAX = 6
N_OPTIONAL_MAX = 6
JSON_CHARS_MAX = 4000
N_TRIES = 30
FORMATS = {
    "date": "2024-05-17",
    "time": "10:20:30Z",
    "date-time": "2024-05-17T10:20:30Z",
    "email": "someone@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::7",
    "uri": "https://example.com/a/b",
    "uri-reference": "https://example.com/a/b",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "regex": "^a+$",
}
# Texts that fit many patterns of real schemas: versions, names, paths, colours, addresses, times.
COMMON = (
    *FORMATS.values(),
    *("1.2.3", "name", "a-name", "Name", "a_b", "a/b", "1", "10s", "v1.0.0", "#ffffff", "./a.json", "a.b"),
    *("1.0", "en", "en-US", "A", "100%", "${a}", "@a/b", "a:b", "*", ""),
)


class NoValueError(Exception):
    """No value was found that fits this part of the schema."""


class Walk:
    """One value of a schema: each call of `value` makes random choices."""

    def __init__(self, root: Mapping[str, Any], rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def value(self, schema: Any, depth: int = 0) -> Any:
        if schema is True:
            return self._text({})
        if not isinstance(schema, dict) or depth > DEPTH_MAX * 2:
            raise NoValueError
        merged = self._merged(schema, 0)
        if "const" in merged:
            return merged["const"]
        if isinstance(merged.get("enum"), list) and merged["enum"]:
            return self._rng.choice(merged["enum"])
        kind = merged.get("type") or self._guessed_type(merged)
        kind = self._rng.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self._object(merged, depth)
        if kind == "array":
            return self._array(merged, depth)
        if kind == "string":
            return self._text(merged)
        if kind in ("integer", "number"):
            return self._number(merged, kind)
        return {"boolean": self._rng.random() < 0.5, "null": None}[str(kind)]

    def _resolved(self, target: str) -> Any:
        node: Any = self._root
        for key in target.removeprefix("#").split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~").replace("%24", "$")
            try:
                node = node[int(key)] if isinstance(node, list) else node[key]
            except (KeyError, IndexError, ValueError, TypeError):
                raise NoValueError from None
        return node

    def _merged(self, schema: dict[str, Any], n_merged: int) -> dict[str, Any]:
        """Return the schema with its references, all of `allOf`, and one choice of `anyOf` and `oneOf` in it."""
        if n_merged > 50:
            raise NoValueError
        parts: list[Any] = []
        if isinstance(schema.get("$ref"), str):
            parts.append(self._resolved(schema["$ref"]))
        parts += schema.get("allOf") or []
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                parts.append(self._rng.choice(schema[keyword]))
        out = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", "anyOf", "oneOf")}
        for part in parts:
            if part is True:
                continue
            if not isinstance(part, dict):
                raise NoValueError
            inner = self._merged(part, n_merged + 1)
            properties = {**out.get("properties", {}), **inner.get("properties", {})}
            required = [*out.get("required", []), *inner.get("required", [])]
            out = {**out, **inner}
            if properties:
                out["properties"] = properties
            if required:
                out["required"] = required
        return out

    def _guessed_type(self, schema: dict[str, Any]) -> str:
        if "properties" in schema or "additionalProperties" in schema or "patternProperties" in schema:
            return "object"
        if "items" in schema:
            return "array"
        if "minimum" in schema or "maximum" in schema:
            return "integer"
        return "string"

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", []))
        optional = [name for name in properties if name not in required]
        n_optional = self._rng.randint(0, N_OPTIONAL_MAX) if depth < DEPTH_MAX else 0
        chosen = required | set(self._rng.sample(optional, min(n_optional, len(optional))))
        out: dict[str, Any] = {}
        for name, inner in properties.items():
            if name not in chosen:
                continue
            try:
                out[name] = self.value(inner, depth + 1)
            except NoValueError:
                if name in required:
                    raise
        extra = schema.get("additionalProperties")
        if not properties and isinstance(extra, dict) and depth < DEPTH_MAX:
            for i in range(self._rng.randint(1, 2)):
                out[f"{self._rng.choice('abcdef')}{i}"] = self.value(extra, depth + 1)
        return out

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        n_least = int(schema.get("minItems", 0))
        n_most = int(schema.get("maxItems", n_least + 3))
        items = schema.get("items", True)
        if isinstance(items, list):
            return [self.value(item, depth + 1) for item in items[: max(n_least, 1)]]
        n = n_least if depth >= DEPTH_MAX else self._rng.randint(n_least, max(n_least, min(n_most, 3)))
        out: list[Any] = []
        for _ in range(n):
            item = self.value(items, depth + 1)
            if not schema.get("uniqueItems") or item not in out:
                out.append(item)
        return out

    def _text(self, schema: dict[str, Any]) -> str:
        n_least, n_most = int(schema.get("minLength", 0)), int(schema.get("maxLength", 200))
        known = [
            text for text in (schema.get("default"), *(schema.get("examples") or [])) if isinstance(text, str)
        ]
        if isinstance(schema.get("pattern"), str):
            try:
                pattern = re.compile(schema["pattern"])
            except re.error:
                raise NoValueError from None
            fitting = [text for text in (*known, *COMMON) if pattern.search(text)]
            fitting = [text for text in fitting if n_least <= len(text) <= n_most]
            if not fitting:
                raise NoValueError
            return self._rng.choice(fitting)
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        if known and self._rng.random() < 0.5:
            return self._rng.choice(known)
        words = str(schema.get("description", "")).split() or WORDS
        first = self._rng.randrange(len(words))
        text = " ".join(words[first : first + self._rng.randint(1, 8)])
        return text[:n_most].ljust(n_least, "x")

    def _number(self, schema: dict[str, Any], kind: str) -> int | float:
        least, most = schema.get("minimum"), schema.get("maximum")
        low = int(least) if least is not None else (0 if most is None else int(most) - 1000)
        high = int(most) if most is not None else low + 1000
        number = self._rng.randint(low, max(low, high))
        multiple = schema.get("multipleOf", 1)
        if isinstance(multiple, int) and multiple > 1:
            number -= number % multiple
        return number + 0.5 if kind == "number" and self._rng.random() < 0.3 else number


def instances(schema: Mapping[str, Any], n: int) -> list[str]:
    """Return up to n different valid values of a schema as JSON. It has fewer, or none, if they are hard to find."""
    try:
        validator = validators.validator_for(schema)(schema)
    except Exception:  # whatever a malformed schema makes of it
        return []
    out: list[str] = []
    for seed in range(N_TRIES):
        try:
            value = Walk(schema, random.Random(seed)).value(schema)
            text = json.dumps(value, ensure_ascii=False)
            is_valid = text not in out and len(text) <= JSON_CHARS_MAX and validator.is_valid(value)
        except Exception:  # NoValueError, or a schema that contradicts its own draft in one of a hundred ways
            continue
        if is_valid:
            out.append(text)
        if len(out) == n:
            break
    return out
