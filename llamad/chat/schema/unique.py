"""`uniqueItems` over listed values: each value may come once, in any order.

Each conversion runs on one thread. There is a rule for each set of values that have come; their number is bounded.
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

MOST_SETS = 1024  # the number of sets of ten values
_DEEPEST = 8  # levels of choices inside choices


def unique_array(context: Context, owns: Sequence[Node], hint: str) -> Expr | None:
    """Return the expression for the array, or None if the elements need not be unique or are not listed."""
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
    """Return the values that satisfy the goal and that its `enum`, `const` or a choice of these lists; None if nothing
    lists them."""
    flat = context.flattener.flatten(goal)
    if flat is None:
        return []
    given = next((one.node for one in flat if one.kind == "own" and one.node.value.keys() & _LISTS), None)
    values: list[Any] | None = None
    if given is not None:
        values = given.get("enum") if "enum" in given.value else [given.get("const")]
    elif any(one.kind == "null" for one in flat):
        values = [None]
    elif depth < _DEEPEST and (choice := next((one for one in flat if one.is_choice), None)) is not None:
        options = [_values(context, (one,), depth + 1) for one in context.flattener.choices(choice)]
        if all(one is not None for one in options):
            values = [value for one in options for value in one or ()]
    return None if values is None else [value for value in values if context.checker.satisfies(value, flat)]


_LISTS = frozenset({"enum", "const"})


def _distinct(context: Context, values: list[Any]) -> list[Any]:
    context.report.spend(len(values) ** 2)
    return [value for i, value in enumerate(values) if not any(same(value, other) for other in values[:i])]


class _Sets:
    """Writes the rules. A set of values is a number with one bit for each value."""

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
            used = self._waiting.pop()
            more = seq(comma(self._rules), self._next(used, last))
            self._rules.define(self._names[used], more if used.bit_count() < least else opt(more))
        return enclosed(self._rules, "[", inside if least else opt(inside), "]")

    def _next(self, used: int, last: int) -> Expr:
        """Return the expression for one of the values that have not come, and what follows it."""
        if used.bit_count() == last:
            return EMPTY
        left = (i for i in range(len(self._values)) if not used >> i & 1)
        return alt(seq(self._values[i], self._rest(used | 1 << i, last)) for i in left)

    def _rest(self, used: int, last: int) -> Expr:
        if used.bit_count() == last:
            return EMPTY
        if used not in self._names:
            self._names[used] = self._rules.reserve(f"{self._hint}-rest")
            self._waiting.append(used)
        return Reference(self._names[used])
