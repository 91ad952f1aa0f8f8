"""Free text as grammar rules: any text without some marks, until something that may begin anywhere begins.

Any thread, no state. The rules are the states of an automaton that follows all marks at once; each ends in the next, so
that a long text costs no more than a short one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

import msgspec

from llamad.chat.schema.expressions import EMPTY, NEVER, Chars, Expr, Reference, alt, normal, seq

BLANKS = None  # in a mark: any whitespace, or none
_BLANK = " \t\r\n"
_LAST = 0x10FFFF

Part = str | None
State = frozenset[tuple[int, int]]  # marks, and how much of each has been seen


class Mark(msgspec.Struct, frozen=True):
    """Text that is not free, anywhere or at the start only. What follows it is `then`; None: it must not come."""

    parts: tuple[Part, ...]
    at_start: bool = False
    then: Expr | None = None

    @property
    def steps(self) -> tuple[Part, ...]:
        return tuple(step for part in self.parts for step in (part if part is not BLANKS else (BLANKS,)))


def mark(*parts: Part, at_start: bool = False) -> Mark:
    return Mark(parts, at_start)


def object_marks(names: list[str], *opens: str) -> list[Mark]:
    """What begins calls as bare JSON objects, if `opens` precede them: only those of known functions are calls."""
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
    """Writes the rules, and returns the first. The text may end at any point, go on with `anywhere`, or with `at_start`
    where no more than the whitespace has come that a mark at the start begins with."""
    found = _Automaton(marks)
    names: dict[State, str] = {found.start: name}
    waiting = [found.start]
    while waiting:
        state = waiting.pop()
        options: list[Expr] = [EMPTY, anywhere]
        if found.is_fresh(state):
            options.append(at_start)
        for chars, then in found.moves(state):
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
        """Characters, and the state after them or what follows the mark that they complete."""
        ways: dict[State | Expr, list[str]] = {}
        for char in self._chars:
            after = self._after(state, char)
            if after is not None:
                ways.setdefault(after, []).append(char)
        found: list[tuple[Expr, State | Expr]] = [
            (Chars(normal((ord(c), ord(c)) for c in chars)), after) for after, chars in ways.items()
        ]
        return [*found, (self._others, self._again)]

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
        """With what follows whitespace that may be none."""
        found = set(seen)
        for i, n in seen:
            while n < len(self._steps[i]) and self._steps[i][n] is BLANKS:
                n += 1
                found.add((i, n))
        return frozenset(found)


def without(chars: Iterable[str]) -> Chars:
    """Any character but these."""
    ranges: list[tuple[int, int]] = []
    low = 0
    for code in sorted({ord(char) for char in chars} | {0xD800}):
        if low < code:
            ranges.append((low, code - 1))
        low = 0xE000 if code == 0xD800 else code + 1
    return Chars((*ranges, (low, _LAST)))
