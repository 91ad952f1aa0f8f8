"""A goal is a set of schemas that a value must satisfy at once. `flatten` resolves `$ref` and `allOf` until only
assertions and open choices are left, so that equal constraints become the same goal and thus the same rule.

Each conversion runs on one thread. Merges nothing and writes no rules.
"""

from __future__ import annotations

from typing import Literal as OneOf

import msgspec

from llamad.chat.schema.document import Document, Node
from llamad.chat.schema.errors import Report, SchemaError

# Keywords that assert something by themselves. All other keywords only annotate, refer or combine.
STRINGS = frozenset({"format", "maxLength", "minLength", "pattern"})
NUMBERS = frozenset({"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"})
ARRAYS = frozenset(
    {
        "additionalItems",
        "contains",
        "items",
        "maxItems",
        "minItems",
        "prefixItems",
        "unevaluatedItems",
        "uniqueItems",
    }
)
OBJECTS = frozenset(
    {
        "additionalProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "maxProperties",
        "minProperties",
        "patternProperties",
        "properties",
        "propertyNames",
        "required",
        "unevaluatedProperties",
    }
)
GENERAL = frozenset({"$dynamicRef", "$recursiveRef", "const", "enum", "if", "not", "type"})
ASSERTIONS = STRINGS | NUMBERS | ARRAYS | OBJECTS | GENERAL
UNEVALUATED = frozenset({"unevaluatedItems", "unevaluatedProperties"})
COMBINED = frozenset({"$ref", "allOf", "anyOf", "oneOf", "nullable"})

# node: a whole schema; body: the schema without `nullable`; own: only its assertions; null: the value null;
# the others: a choice of one of several schemas.
Kind = OneOf["node", "body", "own", "null", "anyOf", "oneOf", "nullable"]


class Atom(msgspec.Struct, frozen=True):
    kind: Kind
    node: Node

    @property
    def is_choice(self) -> bool:
        return self.kind in ("anyOf", "oneOf", "nullable")


Goal = tuple[Atom, ...]


def schema(node: Node) -> Atom:
    return Atom("node", node)


class Flattener:
    def __init__(self, document: Document, report: Report) -> None:
        self._document = document
        self._report = report

    def flatten(self, goal: Goal) -> Goal | None:
        """Return a goal of own, null and choices only, without duplicates, in the schema's order; None if nothing can
        satisfy it."""
        atoms: dict[Atom, None] = {}
        done: set[Atom] = set()
        path: set[Atom] = set()
        stack = [(atom, False) for atom in reversed(goal)]
        head = goal[0] if len(goal) == 1 else None
        while stack:
            atom, leaving = stack.pop()
            self._report.spend(1)
            if leaving:
                path.discard(atom)
                continue
            if atom in path:
                raise SchemaError(
                    atom.node.pointer, "$ref", "the reference refers back to itself with nothing between"
                )
            if atom in done:
                continue
            done.add(atom)
            if atom.kind not in ("node", "body"):
                atoms[atom] = None
                continue
            self._document.check(atom.node)
            if atom.node.value is False:
                return None
            below = self._below(atom, atom.node if atom == head else self._inner(atom.node))
            if atom == head:
                head = below[0] if len(below) == 1 else None
            path.add(atom)
            stack.append((atom, True))
            stack.extend((item, False) for item in reversed(below))
        return tuple(atoms)

    def choices(self, atom: Atom) -> list[Atom]:
        """Return the alternatives of a choice."""
        node = atom.node
        if atom.kind == "nullable":
            return [Atom("body", node), Atom("null", node)]
        return [schema(node.child(atom.kind, i)) for i in range(len(node.get(atom.kind)))]

    def _below(self, atom: Atom, node: Node) -> list[Atom]:
        if node.value is True:
            return []
        if (
            atom.kind == "node"
            and node.get("nullable")
            and node.value.keys() & (ASSERTIONS | COMBINED) != {"nullable"}
        ):
            return [Atom("nullable", node)]
        below: list[Atom] = []
        own = [Atom("own", node)] if node.value.keys() & ASSERTIONS else []
        if "properties" not in node.value:
            below += own
        for keyword in node.value:  # their order decides the order of the properties
            if keyword == "$ref":
                target = self._document.target(node)
                below += [schema(target)] if target else []
            elif keyword == "allOf":
                below += [schema(node.child(keyword, i)) for i in range(len(node.get(keyword)))]
            elif keyword in ("anyOf", "oneOf"):
                below.append(Atom("anyOf" if keyword == "anyOf" else "oneOf", node))
            elif keyword == "properties":
                below += own
        return below

    def _inner(self, node: Node) -> Node:
        """Return the node without `unevaluated…` keywords, which are refused. They depend on everything that is
        asserted of the value, so they are supported only in the outermost schema."""
        if node.value is True or not node.value.keys() & UNEVALUATED:
            return node
        for keyword in sorted(node.value.keys() & UNEVALUATED):
            reason = "cannot be honoured inside a combination of schemas"
            self._report.refuse(node.pointer, keyword, reason)
        return Node(node.pointer, {key: value for key, value in node.value.items() if key not in UNEVALUATED})
