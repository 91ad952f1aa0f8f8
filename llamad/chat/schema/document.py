"""The schema as the client sent it: its nodes, the targets of `$ref`, and limits on its size.

Each conversion runs on one thread; the schema is only read. The meaning of keywords is decided elsewhere.
"""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import unquote

import msgspec

from llamad.chat.schema.errors import Report, SchemaError
from llamad.chat.schema.shapes import check_shapes

DEEPEST = 400  # levels of JSON; a property takes two of them
MOST_PLACES = 1_000_000
LONGEST_NUMBER = 13_000  # bits; Python does not turn longer numbers into decimal digits
DATA = frozenset({"const", "default", "enum", "example", "examples"})  # these hold values, not schemas


class Node(msgspec.Struct, frozen=True, eq=False):
    """One schema in the document, identified by its path."""

    pointer: str
    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.pointer == other.pointer

    def __hash__(self) -> int:
        return hash(self.pointer)

    def __repr__(self) -> str:
        return f"Node({self.pointer!r})"

    def child(self, *steps: str | int) -> Node:
        pointer, value = self.pointer, self.value
        for step in steps:
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
            value = value[step]
        return Node(pointer, value)

    def get(self, keyword: str) -> Any:
        return self.value.get(keyword)


class Document:
    def __init__(self, schema: object, report: Report) -> None:
        _check_size(schema)
        self.root = Node("#", schema)
        self._report = report
        self._checked: set[str] = set()
        self._anchors: dict[str, Node] | None = None

    def check(self, node: Node) -> None:
        """Raise SchemaError if a keyword of this node is malformed."""
        if node.pointer not in self._checked:
            self._checked.add(node.pointer)
            check_shapes(node.pointer, node.value)

    def target(self, node: Node) -> Node | None:
        """Return the target of the node's `$ref`, or None if it is outside the document and may be ignored."""
        ref: str = node.value["$ref"]
        base, _, fragment = ref.partition("#")
        own = self.root.get("$id") if isinstance(self.root.value, dict) else None
        if base and not (isinstance(own, str) and own.rstrip("#") == base):
            self._report.refuse(node.pointer, "$ref", f'"{ref}" is outside the schema; only "#…" is followed')
            return None
        try:
            fragment = unquote(fragment, errors="strict")
        except UnicodeDecodeError:
            raise SchemaError(node.pointer, "$ref", f'"{ref}" has a malformed % escape') from None
        target = self._by_pointer(fragment) if fragment[:1] in ("", "/") else self._by_anchor(fragment)
        if target is None or not isinstance(target.value, bool | dict):
            raise SchemaError(node.pointer, "$ref", f'there is no schema at "{ref}"')
        return target

    def _by_pointer(self, fragment: str) -> Node | None:
        node = self.root
        for token in fragment.split("/")[1:]:
            step = token.replace("~1", "/").replace("~0", "~")
            if isinstance(node.value, dict) and step in node.value:
                node = node.child(step)
            elif isinstance(node.value, list) and step.isascii() and step.isdigit() and len(step) < 10:
                if int(step) >= len(node.value):
                    return None
                node = node.child(int(step))
            else:
                return None
        return node

    def _by_anchor(self, name: str) -> Node | None:
        if self._anchors is None:
            self._anchors = _anchors(self.root)
        return self._anchors.get(name)


def _anchors(root: Node) -> dict[str, Node]:
    anchors: dict[str, Node] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node.value, dict):
            names = [node.get("$anchor"), node.get("$dynamicAnchor")]
            names += [str(own)[1:] for own in (node.get("$id"), node.get("id")) if str(own)[:1] == "#"]
            for name in names:
                if isinstance(name, str):
                    anchors.setdefault(name, node)
            stack.extend(node.child(key) for key in reversed(node.value) if key not in DATA)
        elif isinstance(node.value, list):
            stack.extend(node.child(i) for i in reversed(range(len(node.value))))
    return anchors


def _check_size(schema: object) -> None:
    """Check the depth and the size, and that every key, string and number can be written as JSON."""
    places = 0
    level: list[object] = [schema]
    depth = 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise SchemaError("#", "", f"the schema is nested deeper than {DEEPEST} levels; flatten it")
        below: list[object] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
                for key in value:
                    _check_scalar(key)
                    if not isinstance(key, str):
                        raise SchemaError("#", "", "a key of the schema is not a string")
            elif isinstance(value, list):
                below.extend(value)
            else:
                _check_scalar(value)
        places += len(below)
        if places > MOST_PLACES:
            raise SchemaError("#", "", f"the schema has more than {MOST_PLACES:,} values; simplify it")
        level = below


def _check_scalar(value: object) -> None:
    reason = ""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            reason = "a string in the schema has a lone surrogate; send whole characters"
    elif isinstance(value, float):
        if not math.isfinite(value):
            reason = "a number in the schema is not finite"
    elif isinstance(value, int):
        if value.bit_length() > LONGEST_NUMBER:
            reason = "a number in the schema has thousands of digits"
    elif value is not None:
        reason = f"the schema holds a {type(value).__name__}, which is not a JSON value"
    if reason:
        raise SchemaError("#", "", reason)
