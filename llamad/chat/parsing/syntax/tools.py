"""The functions that a request offers, as far as parsing needs them: their names, and the types of their parameters.

Read-only once made; any thread. Schemas come from clients, so nothing here relies on their form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from llamad.chat.parsing.syntax.json_reader import escaped

_PYTHON = ("python", "ipython", "code_interpreter")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_SPOKEN = {"True": "true", "False": "false", "None": "null"}
_DEEPEST = 16
_LOOKS_MAX = 1000  # how many subschemas of one schema are visited, because references may multiply them


class Tools:
    """The functions of a request. If `tools` is None, every name is accepted, and a parameter's type is guessed from
    its text."""

    def __init__(self, tools: Iterable[Any] | None) -> None:
        self._functions: dict[str, Any] | None = None
        if tools is not None:
            self._functions = {}
            for tool in tools:
                function = function_of(tool)
                if isinstance(function.get("name"), str):
                    self._functions[function["name"]] = function.get("parameters")

    @property
    def known(self) -> bool:
        return self._functions is not None

    def has(self, name: str) -> bool:
        return self._functions is None or name in self._functions

    @property
    def python(self) -> str:
        """Return the name of the function that takes bare code, or "" if there is none."""
        return next((name for name in _PYTHON if self._functions and name in self._functions), "")

    def types(self, function: str, parameter: str) -> frozenset[str]:
        """Return the JSON types that the parameter may have; empty if they are unknown."""
        schema = (self._functions or {}).get(function)
        properties = schema.get("properties") if isinstance(schema, dict) else None
        own = properties.get(parameter) if isinstance(properties, dict) else None
        return types_of(own, schema)


def function_of(tool: Any) -> dict[str, Any]:
    """Return the function of a tool, which is OpenAI's {"type":"function","function":{…}} or the function alone."""
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    return function if isinstance(function, dict) else {}


def types_of(schema: Any, root: Any) -> frozenset[str]:
    return _types_of(schema, root, 0, iter(range(_LOOKS_MAX)))


def _types_of(schema: Any, root: Any, depth: int, looks: Iterator[int]) -> frozenset[str]:
    if not isinstance(schema, dict) or depth > _DEEPEST or next(looks, None) is None:
        return frozenset()
    if isinstance(schema.get("$ref"), str):
        return _types_of(_target(root, schema["$ref"]), root, depth + 1, looks)
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset([named])
    if isinstance(named, list):
        return frozenset(kind for kind in named if isinstance(kind, str))
    if "const" in schema:
        return frozenset([_type(schema["const"])])
    if isinstance(schema.get("enum"), list):
        return frozenset(map(_type, schema["enum"]))
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list):
            types = [_types_of(option, root, depth + 1, looks) for option in schema[keyword]]
            return frozenset().union(*types) if all(types) else frozenset()
    return frozenset()


def json_of(text: str, types: frozenset[str]) -> str:
    """Return the JSON value of a bare parameter: as written if it has one of these types, else a string."""
    bare = text.strip()
    if types:
        bare = _SPOKEN.get(bare, bare)
    try:
        kind = _type(json.loads(bare, parse_constant=_refuse))
    except (ValueError, RecursionError):
        kind = ""
    fits = kind in types or (kind == "integer" and "number" in types) if types else bool(kind)
    return bare if fits else f'"{escaped(text)}"'


def _type(value: Any) -> str:
    return _TYPES.get(type(value), "null")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _target(root: Any, ref: str) -> Any:
    steps = ref.split("/")
    if steps[0] != "#":
        return None
    target = root
    for step in steps[1:]:
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
    return target
