"""The conversion: makes a rule for every goal until none is left.

Each conversion has one `Converter` and runs on one thread. There is no recursion over the schema: goals are queued, and
equal goals share a rule, which also turns recursive schemas into recursive grammars.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from llamad.chat.schema.arrays import array
from llamad.chat.schema.check import Checker
from llamad.chat.schema.constants import of_values
from llamad.chat.schema.context import Context
from llamad.chat.schema.document import Document, Node
from llamad.chat.schema.errors import Report, SchemaError
from llamad.chat.schema.expressions import NEVER, Expr, Literal, Reference, alt, opt, rep, seq
from llamad.chat.schema.goals import ARRAYS, NUMBERS, OBJECTS, STRINGS, Atom, Flattener, Goal, schema
from llamad.chat.schema.layout import comma, enclosed, space
from llamad.chat.schema.numbers import integer, number, only_whole
from llamad.chat.schema.objects import object_
from llamad.chat.schema.rules import Rules
from llamad.chat.schema.strings import Strings
from llamad.chat.schema.unique import unique_array

ALL = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
FAMILIES = (
    (STRINGS, {"string"}),
    (NUMBERS, {"integer", "fraction"}),
    (ARRAYS, {"array"}),
    (OBJECTS, {"object"}),
)
DEEPEST_VALUE = 64


class Converter:
    def __init__(self, schema_: object, strict: bool) -> None:
        self.report = Report(strict)
        self.document = Document(schema_, self.report)
        self.rules = Rules()
        flattener = Flattener(self.document, self.report)
        strings = Strings(self.rules, self.report)
        checker = Checker(self.document, self.report, flattener, strings)
        self.context = Context(self.rules, self.report, flattener, strings, checker, self.ask)
        self._names: dict[Goal, str] = {}
        self._queue: deque[tuple[Goal, str]] = deque()
        self._alternatives: dict[str, list[str]] = {}  # rules that may be the whole body of a rule
        self._pointers: dict[str, str] = {}

    def grammar(self) -> str:
        return "".join(f"{name} ::= {body}\n" for name, body in self._rules(self.document.root).items())

    def named_rules(self, prefix: str, at: Sequence[str]) -> dict[str, str]:
        return self._rules(self.document.root.child(*at), prefix)

    def _rules(self, root: Node, prefix: str = "") -> dict[str, str]:
        start = self.ask((schema(root),), "root")
        while self._queue:
            goal, name = self._queue.popleft()
            self.rules.define(name, self._body(goal, name))
        self._check_progress()
        self.rules.define("root", start)
        rendered = self.rules.rendered("root", prefix)
        if rendered is None:
            raise SchemaError(root.pointer, "", "no JSON value can satisfy this schema")
        return rendered

    def ask(self, goal: Goal, hint: str) -> Expr:
        flat = self.context.flattener.flatten(goal)
        if flat is None:
            return NEVER
        if not flat:
            return self._any_value()
        if flat not in self._names:
            name = self.rules.reserve(hint if hint != "root" else "top")
            self._names[flat] = name
            self._pointers[name] = flat[0].node.pointer
            self._queue.append((flat, name))
        return Reference(self._names[flat])

    def _body(self, goal: Goal, name: str) -> Expr:
        self.report.spend(1)
        choice = next((i for i, atom in enumerate(goal) if atom.is_choice), None)
        if choice is None:
            if any(atom.kind == "null" for atom in goal):
                return Literal("null") if self.context.checker.satisfies(None, goal) else NEVER
            return self._plain([atom.node for atom in goal], name)
        options = [
            self.ask((*goal[:choice], option, *goal[choice + 1 :]), name)
            for option in self.context.flattener.choices(goal[choice])
        ]
        self._alternatives[name] = [option.name for option in options if isinstance(option, Reference)]
        return alt(options)

    def _plain(self, owns: Sequence[Node], name: str) -> Expr:
        """Return the expression for a goal without choices: fixed values, or the types with their constraints."""
        given = next((node for node in owns if node.value.keys() & {"enum", "const"}), None)
        if given is not None:
            return self._given(given, owns, name)
        for node in owns:
            self._refuse(node)
        if any(node.value.get("not") in (True, {}) for node in owns):
            return NEVER
        types = _types(owns)
        if types >= {"integer", "fraction"} and only_whole(owns):
            types = types - {"fraction"}
        return alt(self._typed(kind, owns, types, name) for kind in sorted(types))

    def _given(self, node: Node, owns: Sequence[Node], name: str) -> Expr:
        keyword = "enum" if "enum" in node.value else "const"
        values = node.get("enum") if keyword == "enum" else [node.get("const")]
        asked = tuple(Atom("own", own) for own in owns)
        allowed = []
        for value in values:
            if _depth(value) > DEEPEST_VALUE:
                raise SchemaError(
                    node.pointer, keyword, f"a value is nested deeper than {DEEPEST_VALUE} levels"
                )
            if self.context.checker.satisfies(value, asked):
                allowed.append(value)
        return of_values(self.rules, self.report, allowed, name) if allowed else NEVER

    def _refuse(self, node: Node) -> None:
        if node.value.get("not", False) not in (False, True, {}):
            self.report.refuse(node.pointer, "not", "a grammar cannot exclude values; list what is allowed")
        if "if" in node.value and node.value.keys() & {"then", "else"}:
            self.report.refuse(node.pointer, "if", "it cannot be honoured; list the cases with anyOf")
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in node.value:
                self.report.refuse(node.pointer, keyword, "it cannot be followed; use $ref")

    def _typed(self, kind: str, owns: Sequence[Node], types: Iterable[str], name: str) -> Expr:
        rules, report = self.rules, self.report
        match kind:
            case "null":
                return Literal("null")
            case "boolean":
                return rules.once("boolean", lambda: alt([Literal("true"), Literal("false")]))
            case "integer":
                return integer(rules, report, owns) if "fraction" not in types else NEVER
            case "fraction":
                return number(rules, report, owns)
            case "string":
                strings = self.context.strings
                return rules.shared(name, strings.expr(strings.gather(owns), name))
            case "array":
                if not any(node.value.keys() & ARRAYS for node in owns):
                    return self._any_array()
                unique = unique_array(self.context, owns, name)
                return unique if unique is not None else array(rules, report, owns, self.ask, name)
            case _:
                if not any(node.value.keys() & OBJECTS for node in owns):
                    return self._any_object()
                return object_(self.context, owns, name)

    def _any_value(self) -> Expr:
        def make() -> Expr:
            scalars = [self._typed(kind, (), ALL, "") for kind in ("string", "fraction", "boolean", "null")]
            return alt([self._any_object(), self._any_array(), *scalars])

        return self.rules.once("value", make)

    def _any_array(self) -> Expr:
        def make() -> Expr:
            item = self._any_value()
            return enclosed(self.rules, "[", opt(seq(item, rep(seq(comma(self.rules), item), 0, None))), "]")

        return self.rules.once("array", make)

    def _any_object(self) -> Expr:
        def make() -> Expr:
            blank = space(self.rules)
            member = seq(self.context.strings.any_string(), Literal(":"), blank, self._any_value())
            return enclosed(
                self.rules, "{", opt(seq(member, rep(seq(comma(self.rules), member), 0, None))), "}"
            )

        return self.rules.once("object", make)

    def _check_progress(self) -> None:
        """Raise SchemaError if a rule reaches itself through choices alone: it would recurse without consuming
        anything."""
        done: set[str] = set()
        for start in self._alternatives:
            path: set[str] = set()
            stack = [(start, False)]
            while stack:
                name, leaving = stack.pop()
                if leaving:
                    path.discard(name)
                    done.add(name)
                elif name in path:
                    reason = "a choice refers back to itself with nothing between"
                    raise SchemaError(self._pointers[name], "anyOf", reason)
                elif name not in done:
                    path.add(name)
                    stack.append((name, True))
                    stack.extend((option, False) for option in self._alternatives.get(name, ()))


def _types(owns: Iterable[Node]) -> frozenset[str]:
    """Return the types that all nodes allow. If none names any, the keywords decide: `properties` means an object."""
    allowed = ALL
    named = False
    hinted: set[str] = set()
    for node in owns:
        if "type" in node.value:
            named = True
            kinds = node.get("type") if isinstance(node.get("type"), list) else [node.get("type")]
            allowed &= {*kinds} - {"number"} | ({"integer", "fraction"} if "number" in kinds else set())
        for keywords, kinds in FAMILIES:
            if node.value.keys() & keywords:
                hinted |= kinds
    return allowed if named or not hinted else frozenset(hinted)


def _depth(value: Any) -> int:
    depth = 0
    level = [value]
    while level:
        depth += 1
        level = [
            below
            for item in level
            if isinstance(item, dict | list)
            for below in (item.values() if isinstance(item, dict) else item)
        ]
    return depth
