"""`uniqueItems` over values that are listed: each may come once, in any order.

One conversion, one thread. A rule for each set of values that have come; their number is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Any

from llamad.chat.schema.arrays import counts, element, leading
from llamad.chat.schema.check import same
from llamad.chat.schema.constants import of_values
from llamad.chat.schema.context import Context
from llamad.chat.schema.document import Node
from llamad.chat.schema.expressions import EMPTY, NEVER, Expr, Reference, alt, opt, seq
from llamad.chat.schema.goals import Goal
from llamad.chat.schema.layout import comma, enclosed

MOST_SETS = 1024  # all those of ten values
_DEEPEST = 8  # choices inside choices


def unique_array(context: Context, owns: Sequence[Node], hint: str) -> Expr | None:
    """None if nothing says that the elements are unique, or they are not listed."""
    asked = [node for node in owns if node.get("uniqueItems")]
    if not asked or any(map(leading, owns)):
        return None
    values = _values(context, element(owns, 0))
    if values is None:
        return None
    least, most = counts(context.report, owns)
    last = len(values) if most is None else min(most, len(values))
    if len(values) > MOST_SETS or sum(comb(len(values), n) for n in range(last + 1)) > MOST_SETS:
        context.report.refuse(
            asked[0].pointer,
            "uniqueItems",
            f"{len(values)} values are too many for a grammar, which needs a rule for each set of them, and may have"
            f" {MOST_SETS}; list at most 10, or limit maxItems",
        )
        return None
    return _Sets(context, _distinct(context, values), hint).array(least, most)


def _values(context: Context, goal: Goal, depth: int = 0) -> list[Any] | None:
    """The values that can satisfy the goal, by its `enum`, `const` or choice of such; None: nothing lists them."""
    flat = context.flattener.flatten(goal)
    if flat is None:
        return []
    given = next((one.node for one in flat if one.kind == "own" and one.node.value.keys() & _LISTS), None)
    found: list[Any] | None = None
    if given is not None:
        found = given.get("enum") if "enum" in given.value else [given.get("const")]
    elif any(one.kind == "null" for one in flat):
        found = [None]
    elif depth < _DEEPEST and (choice := next((one for one in flat if one.is_choice), None)) is not None:
        options = [_values(context, (one,), depth + 1) for one in context.flattener.choices(choice)]
        if all(one is not None for one in options):
            found = [value for one in options for value in one or ()]
    return None if found is None else [value for value in found if context.checker.satisfies(value, flat)]


_LISTS = frozenset({"enum", "const"})


def _distinct(context: Context, values: list[Any]) -> list[Any]:
    context.report.spend(len(values) ** 2)
    return [value for i, value in enumerate(values) if not any(same(value, other) for other in values[:i])]


class _Sets:
    """A set of values is a number, with a bit for each."""

    def __init__(self, context: Context, values: list[Any], hint: str) -> None:
        self._rules = context.rules
        self._values = [of_values(context.rules, context.report, [value], f"{hint}-item") for value in values]
        self._hint = hint
        self._names: dict[int, str] = {}
        self._waiting: list[int] = []

    def array(self, least: int, most: int | None) -> Expr:
        last = len(self._values) if most is None else min(most, len(self._values))
        if last < least:
            return NEVER
        inside = self._next(0, last)
        while self._waiting:
            come = self._waiting.pop()
            more = seq(comma(self._rules), self._next(come, last))
            self._rules.define(self._names[come], more if come.bit_count() < least else opt(more))
        return enclosed(self._rules, "[", inside if least else opt(inside), "]")

    def _next(self, come: int, last: int) -> Expr:
        """One of the values that have not come, and what follows it."""
        if come.bit_count() == last:
            return EMPTY
        left = (i for i in range(len(self._values)) if not come >> i & 1)
        return alt(seq(self._values[i], self._rest(come | 1 << i, last)) for i in left)

    def _rest(self, come: int, last: int) -> Expr:
        if come.bit_count() == last:
            return EMPTY
        if come not in self._names:
            self._names[come] = self._rules.reserve(f"{self._hint}-rest")
            self._waiting.append(come)
        return Reference(self._names[come])
