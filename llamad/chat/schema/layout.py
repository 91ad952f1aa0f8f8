"""Whitespace, and the joining of long chains, for objects, arrays and constants.

Each conversion runs on one thread. Whitespace is at most one space, or one or two newlines with bounded indentation, so
that a model cannot write it for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from llamad.chat.schema.expressions import EMPTY, NESTING, Chars, Expr, Literal, Repeat, alt, opt, rep, seq
from llamad.chat.schema.rules import Rules

INDENT = 20


def space(rules: Rules) -> Expr:
    def make() -> Expr:
        indent = rep(Chars(((0x09, 0x09), (0x20, 0x20))), 0, INDENT)
        return opt(alt([Literal(" "), seq(rep(Literal("\n"), 1, 2), indent)]))

    return rules.once("space", make)


def comma(rules: Rules) -> Expr:
    return seq(Literal(","), space(rules))


def enclosed(rules: Rules, opening: str, inside: Expr, closing: str) -> Expr:
    """Return the expression between brackets. Whitespace may follow the opening bracket and, unless it is empty inside,
    precede the closing one."""
    blank = space(rules)
    if isinstance(inside, Repeat) and (inside.least, inside.most) == (0, 1):
        inside = opt(seq(inside.body, blank))
    elif inside != EMPTY:
        inside = seq(inside, blank)
    return seq(Literal(opening), blank, inside, Literal(closing))


class Chain:
    """An expression that is built from its end. Every few links it is moved into a rule, so that it never nests
    deeply."""

    def __init__(self, rules: Rules, hint: str, end: Expr) -> None:
        self._rules = rules
        self._hint = hint
        self._links = 0
        self.expr = end

    def wrap(self, around: Callable[[Expr], Expr]) -> None:
        """Put something around, or in front of, the expression so far."""
        self._links += 1
        if self._links % NESTING == 0:
            self.expr = self._rules.shared(self._hint, self.expr)
        self.expr = around(self.expr)
