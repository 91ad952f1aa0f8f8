"""Checks whether a value satisfies a goal. It filters the values of `enum` and `const`, and property names.

Each conversion runs on one thread. Unlike in a grammar, every keyword can be honoured here.
"""

from __future__ import annotations

from typing import Any

from llamad.chat.schema.arrays import following, leading
from llamad.chat.schema.automaton import Automaton, TooLarge, of_pattern
from llamad.chat.schema.document import Document, Node
from llamad.chat.schema.errors import Report, SchemaError
from llamad.chat.schema.formats import INTEGERS, PATTERNS
from llamad.chat.schema.goals import Atom, Flattener, Goal, schema
from llamad.chat.schema.numbers import bounds, exact
from llamad.chat.schema.shapes import is_number, is_whole
from llamad.chat.schema.strings import Strings

DEEPEST = 80


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal in JSON: 1 equals 1.0, but not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b if not (is_number(a) and is_number(b)) else a == b


def is_type(value: Any, kind: str) -> bool:
    if kind == "integer":
        return is_whole(value)
    if kind == "number":
        return is_number(value)
    kinds = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
    return isinstance(value, kinds[kind])


def _key(value: Any) -> tuple[bool, Any]:
    """Return a key that is the same for equal scalars."""
    return isinstance(value, bool), value


class Checker:
    def __init__(self, document: Document, report: Report, flattener: Flattener, strings: Strings) -> None:
        self._document = document
        self._report = report
        self._flattener = flattener
        self._strings = strings
        self._automata: dict[str, list[tuple[Automaton, bool]]] = {}
        self._values: dict[str, tuple[set[tuple[bool, Any]], list[Any]]] = {}
        self._depth = 0

    def satisfies(self, value: Any, goal: Goal) -> bool:
        self._report.spend(1)
        if self._depth == DEEPEST:
            raise SchemaError(
                goal[0].node.pointer, "enum", "the schemas its values are held to are nested too deeply"
            )
        self._depth += 1
        try:
            flat = self._flattener.flatten(goal)
            return flat is not None and all(self._holds(value, atom) for atom in flat)
        finally:
            self._depth -= 1

    def _holds(self, value: Any, atom: Atom) -> bool:
        if atom.kind == "null":
            return value is None
        if atom.is_choice:
            return any(self.satisfies(value, (option,)) for option in self._flattener.choices(atom))
        return self._general(atom.node, value) and self._by_type(atom.node, value)

    def _general(self, node: Node, value: Any) -> bool:
        given = node.value
        if "type" in given:
            kinds = given["type"] if isinstance(given["type"], list) else [given["type"]]
            if not any(is_type(value, kind) for kind in kinds):
                return False
        if "enum" in given and not self._listed(node, value):
            return False
        if "const" in given and not same(value, given["const"]):
            return False
        if "not" in given and self.satisfies(value, (schema(node.child("not")),)):
            return False
        if "if" in given:
            taken = "then" if self.satisfies(value, (schema(node.child("if")),)) else "else"
            if taken in given and not self.satisfies(value, (schema(node.child(taken)),)):
                return False
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in given:
                self._report.refuse(node.pointer, keyword, "it cannot be followed; use $ref")
        return True

    def _listed(self, node: Node, value: Any) -> bool:
        """Return whether `enum` lists the value. Scalars are looked up; lists and objects are compared."""
        known = self._values.get(node.pointer)
        if known is None:
            self._report.spend(len(node.get("enum")))
            rest = [other for other in node.get("enum") if isinstance(other, dict | list)]
            known = {_key(other) for other in node.get("enum") if not isinstance(other, dict | list)}, rest
            self._values[node.pointer] = known
        if not isinstance(value, dict | list):
            return _key(value) in known[0]
        self._report.spend(len(known[1]))
        return any(same(value, other) for other in known[1])

    def _by_type(self, node: Node, value: Any) -> bool:
        if isinstance(value, bool) or value is None:
            return True
        if isinstance(value, str):
            return self._string(node, value)
        if isinstance(value, list):
            return self._array(node, value)
        if isinstance(value, dict):
            return self._object(node, value)
        return self._number(node, value)

    def _number(self, node: Node, value: int | float) -> bool:
        low, low_out, high, high_out = bounds(node)
        number = exact(value)
        if low is not None and (number < low or (low_out and number == low)):
            return False
        if high is not None and (number > high or (high_out and number == high)):
            return False
        if node.get("format") in INTEGERS and number.denominator == 1:
            first, last = INTEGERS[node.get("format")]
            if not first <= number <= last:
                return False
        return "multipleOf" not in node.value or number % exact(node.get("multipleOf")) == 0

    def _string(self, node: Node, value: str) -> bool:
        if len(value) < node.value.get("minLength", 0) or len(value) > node.value.get(
            "maxLength", len(value)
        ):
            return False
        if "pattern" in node.value and not self.matches(node.pointer, "pattern", node.get("pattern"), value):
            return False
        known = node.get("format")
        if known in PATTERNS:
            return self.matches(node.pointer, "format", PATTERNS[known], value)
        if known is not None and known not in INTEGERS:
            self._strings.gather([node])  # rejects it
        return True

    def matches(self, pointer: str, keyword: str, pattern: str, text: str) -> bool:
        """Return whether the text matches, or the pattern cannot be honoured and need not be."""
        automata = self._compiled(pointer, keyword, pattern)
        self._report.spend(len(text))
        return all(automaton.matches(text) == must_match for automaton, must_match in automata)

    def _compiled(self, pointer: str, keyword: str, pattern: str) -> list[tuple[Automaton, bool]]:
        if pattern not in self._automata:
            parsed = self._strings.patterns(pointer, keyword, pattern)
            try:
                self._automata[pattern] = [
                    (of_pattern(p.tree, self._report.spend), p.must_match) for p in parsed
                ]
            except TooLarge:
                self._report.refuse(pointer, keyword, "the pattern is too complex")
                self._automata[pattern] = []
        return self._automata[pattern]

    def _array(self, node: Node, value: list[Any]) -> bool:
        count = len(value)
        if count < node.value.get("minItems", 0) or count > node.value.get("maxItems", count):
            return False
        first, after = leading(node), following(node)
        for i, item in enumerate(value):
            own = first[i] if i < len(first) else after
            if own is not None and not self.satisfies(item, (schema(own),)):
                return False
        if node.get("uniqueItems"):
            self._report.spend(count * count)
            if any(same(a, b) for i, a in enumerate(value) for b in value[:i]):
                return False
        if "contains" in node.value:
            fits = sum(self.satisfies(item, (schema(node.child("contains")),)) for item in value)
            return bool(node.value.get("minContains", 1) <= fits <= node.value.get("maxContains", count))
        return True

    def _object(self, node: Node, value: dict[str, Any]) -> bool:
        given = node.value
        if not all(name in value for name in given.get("required", ())):
            return False
        if not given.get("minProperties", 0) <= len(value) <= given.get("maxProperties", len(value)):
            return False
        if "propertyNames" in given:
            names = (schema(node.child("propertyNames")),)
            if not all(self.satisfies(name, names) for name in value):
                return False
        return self._members(node, value) and self._dependencies(node, value)

    def _members(self, node: Node, value: dict[str, Any]) -> bool:
        for name, item in value.items():
            schemas = self.schemas_of(node, name)
            if not schemas:
                keyword = (
                    "additionalProperties"
                    if "additionalProperties" in node.value
                    else "unevaluatedProperties"
                )
                schemas = [node.child(keyword)] if keyword in node.value else []
            if not self.satisfies(item, tuple(map(schema, schemas))):
                return False
        return True

    def schemas_of(self, node: Node, name: str) -> list[Node]:
        """Return the schemas that `properties` and `patternProperties` have for a property."""
        schemas = [node.child("properties", name)] if name in node.value.get("properties", ()) else []
        for pattern in node.value.get("patternProperties", ()):
            known = self._compiled(node.pointer, "patternProperties", pattern)
            if known and self.matches(node.pointer, "patternProperties", pattern, name):
                schemas.append(node.child("patternProperties", pattern))
        return schemas

    def _dependencies(self, node: Node, value: dict[str, Any]) -> bool:
        for keyword in ("dependencies", "dependentRequired", "dependentSchemas"):
            for name, asked in node.value.get(keyword, {}).items():
                if name not in value:
                    continue
                if isinstance(asked, list):
                    if not all(other in value for other in asked):
                        return False
                elif not self.satisfies(value, (schema(node.child(keyword, name)),)):
                    return False
        return True
