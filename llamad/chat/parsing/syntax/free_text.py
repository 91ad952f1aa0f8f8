"""Grammar rules for free text: any text without certain marks, until an expression begins that may begin anywhere.

Any thread, no state. The rules are the states of an automaton that follows all marks at once. Each rule ends with the
next one, so that a long text costs no more than a short one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import msgspec

from llamad.chat.schema.expressions import EMPTY, NEVER, Chars, Expr, Reference, alt, normal, seq

BLANKS = None  # in a mark: optional whitespace
_BLANK = " \t\r\n"
_LAST = 0x10FFFF

Piece = str | None
State = frozenset[tuple[int, int]]  # the index of a mark, and how many steps of it have been seen


class Mark(msgspec.Struct, frozen=True):
    """A text that ends free text, anywhere or only at the start. `then` follows it; if that is None, the free text must
    not contain it."""

    pieces: tuple[Piece, ...]
    at_start: bool = False
    then: Expr | None = None

    @property
    def steps(self) -> tuple[Piece, ...]:
        return tuple(step for piece in self.pieces for step in (piece if piece is not BLANKS else (BLANKS,)))


def mark(*pieces: Piece, at_start: bool = False) -> Mark:
    return Mark(pieces, at_start)


def object_marks(names: list[str], *opens: str) -> list[Mark]:
    """Return the marks that begin calls as bare JSON objects, after one of `opens`. Only objects with the name of a
    known function are calls."""
    marks = []
    typed = ('"type"', BLANKS, ":", BLANKS, '"function"', BLANKS, ",", BLANKS)
    for name in names:
        named = ('"name"', BLANKS, ":", BLANKS, json.dumps(name, ensure_ascii=False))
        for before in ((), typed):
            for opened in opens or ("",):
                bracket = (opened, BLANKS) if opened else ()
                marks.append(mark(BLANKS, *bracket, "{", BLANKS, *before, *named, at_start=True))
    return marks


def free_text(
    name: str,
    marks: Sequence[Mark],
    rule: Callable[[str, Expr], Reference],
    *,
    anywhere: Expr = NEVER,
    at_start: Expr = NEVER,
) -> Reference:
    """Write the rules, and return the first. The text may end at any point or continue with `anywhere`. As long as it
    has only whitespace with which a mark at the start may begin, it may also continue with `at_start`."""
    automaton = _Automaton(marks)
    names: dict[State, str] = {automaton.start: name}
    waiting = [automaton.start]
    while waiting:
        state = waiting.pop()
        options: list[Expr] = [EMPTY, anywhere]
        if automaton.is_fresh(state):
            options.append(at_start)
        for chars, then in automaton.moves(state):
            if not isinstance(then, frozenset):
                options.append(seq(chars, then))
                continue
            if then not in names:
                names[then] = f"{name}-{len(names)}"
                waiting.append(then)
            options.append(seq(chars, Reference(names[then])))
        rule(names[state], alt(options))
    return Reference(name)


class _Automaton:
    def __init__(self, marks: Sequence[Mark]) -> None:
        self._marks = marks
        self._steps = [one.steps for one in marks]
        self._again = self._closed({(i, 0) for i, one in enumerate(marks) if not one.at_start})
        self.start = self._closed({(i, 0) for i in range(len(marks))})
        used = {char for steps in self._steps for step in steps for char in (step or _BLANK)}
        self._chars = sorted(used)
        self._others = without(used)

    def is_fresh(self, state: State) -> bool:
        return any(seen == 0 and self._marks[i].at_start for i, seen in state)

    def moves(self, state: State) -> list[tuple[Expr, State | Expr]]:
        """Return sets of characters, each with the next state or, if it completes a mark, what follows the mark."""
        ways: dict[State | Expr, list[str]] = {}
        for char in self._chars:
            after = self._after(state, char)
            if after is not None:
                ways.setdefault(after, []).append(char)
        moves: list[tuple[Expr, State | Expr]] = [
            (Chars(normal((ord(c), ord(c)) for c in chars)), after) for after, chars in ways.items()
        ]
        return [*moves, (self._others, self._again)]

    def _after(self, state: State, char: str) -> State | Expr | None:
        seen = set(self._again)
        for i, n in state:
            step = self._steps[i][n]
            if step is BLANKS and char in _BLANK:
                seen.add((i, n))
            elif step == char:
                seen.add((i, n + 1))
        closed = self._closed(seen)
        complete = [self._marks[i].then for i, n in closed if n == len(self._steps[i])]
        if complete:
            return next((then for then in complete if then is not None), None)
        return closed

    def _closed(self, seen: set[tuple[int, int]]) -> State:
        """Return the state with the steps after optional whitespace added."""
        closed = set(seen)
        for i, n in seen:
            while n < len(self._steps[i]) and self._steps[i][n] is BLANKS:
                n += 1
                closed.add((i, n))
        return frozenset(closed)


def without(chars: Iterable[str]) -> Chars:
    """Return the set of all characters but these."""
    ranges: list[tuple[int, int]] = []
    low = 0
    for code in sorted({ord(char) for char in chars} | {0xD800}):
        if low < code:
            ranges.append((low, code - 1))
        low = 0xE000 if code == 0xD800 else code + 1
    return Chars((*ranges, (low, _LAST)))
