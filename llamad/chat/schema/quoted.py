"""Grammars of sets of JSON strings, from the opening quote to the closing one.

Each conversion runs on one thread. This only writes rules; strings.py decides on the sets.
"""

from __future__ import annotations

from collections.abc import Iterable

from llamad.chat.schema.automaton import Automaton
from llamad.chat.schema.charsets import any_char, spelled
from llamad.chat.schema.errors import Report
from llamad.chat.schema.expressions import NESTING, NEVER, Expr, Literal, Reference, alt, normal, rep, seq
from llamad.chat.schema.regex import BEGIN, END, Cat, Or, Set, Times, Tree, has_anchor
from llamad.chat.schema.rules import Rules

QUOTE = Literal('"')


def of_automaton(rules: Rules, automaton: Automaton, hint: str) -> Expr:
    """Return the expression for an automaton. A state with several predecessors becomes a rule; others are inlined."""
    if automaton.is_empty:
        return NEVER
    return _States(rules, automaton, hint).whole()


class _States:
    def __init__(self, rules: Rules, automaton: Automaton, hint: str) -> None:
        self.rules = rules
        self.automaton = automaton
        self.hint = hint
        self.universal = automaton.universal()
        self.names: dict[int, str] = {}
        self.waiting: list[int] = []
        self.users = [0] * len(automaton.moves)
        for state, moves in enumerate(automaton.moves):
            for after in {to for _, _, to in moves} - {state}:
                self.users[after] += 1

    def whole(self) -> Expr:
        expr = self.enter(0, 0) if self.users[0] else self.exits(0, 0)
        while self.waiting:
            state = self.waiting.pop()
            self.rules.define(self.names[state], self.exits(state, 0))
        return seq(QUOTE, expr)

    def enter(self, state: int, depth: int) -> Expr:
        if state in self.universal:
            return seq(rep(any_char(self.rules), 0, None), QUOTE)
        if self.users[state] == 1 and depth < NESTING and state:
            return self.exits(state, depth)
        if state not in self.names:
            self.names[state] = self.rules.reserve(f"{self.hint}-text")
            self.waiting.append(state)
        return Reference(self.names[state])

    def exits(self, state: int, depth: int) -> Expr:
        if state in self.universal:
            return self.enter(state, depth)
        ways: dict[int, list[tuple[int, int]]] = {}
        for low, high, to in self.automaton.moves[state]:
            ways.setdefault(-1 if to in self.universal else to, []).append((low, high))
        stay = ways.pop(state, None)
        universal = next(iter(self.universal), 0)
        options: list[Expr] = [
            seq(spelled(self.rules, normal(ranges)), self.enter(universal if to < 0 else to, depth + 1))
            for to, ranges in ways.items()
        ]
        if self.automaton.accepts[state]:
            options.append(QUOTE)
        leave = alt(options)
        return seq(rep(spelled(self.rules, normal(stay)), 0, None), leave) if stay else leave


def edges(tree: Tree) -> list[tuple[bool, Tree, bool]] | None:
    """Return the alternatives of a pattern, and whether each is anchored at the start and at the end. Return None if
    there are anchors in other places."""
    options: list[tuple[bool, Tree, bool]] = []
    for option in tree.options if isinstance(tree, Or) else (tree,):
        parts = list(option.parts) if isinstance(option, Cat) else [option]
        begins = ends = False
        while parts and parts[0] == BEGIN:
            begins = True
            parts.pop(0)
        while parts and parts[-1] == END:
            ends = True
            parts.pop()
        core = Cat(tuple(parts))
        if has_anchor(core):
            return None
        options.append((begins, core, ends))
    return options


def of_edges(rules: Rules, report: Report, alternatives: Iterable[tuple[bool, Tree, bool]]) -> Expr:
    """Return the expression for a pattern as it is written, with its repetitions."""
    anything = rep(any_char(rules), 0, None)
    options = []
    for begins, core, ends in alternatives:
        options.append(
            seq(*[] if begins else [anything], of_tree(rules, report, core), *[] if ends else [anything])
        )
    return seq(QUOTE, alt(options), QUOTE)


def of_tree(rules: Rules, report: Report, tree: Tree) -> Expr:
    report.spend(1)
    match tree:
        case Set(ranges):
            return spelled(rules, ranges)
        case Cat(parts):
            return seq(*(of_tree(rules, report, part) for part in parts))
        case Or(options):
            return alt(of_tree(rules, report, option) for option in options)
        case Times(body, least, most):
            return rep(of_tree(rules, report, body), least, most)
    raise AssertionError("anchors are removed first")
