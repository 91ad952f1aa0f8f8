"""Deterministic automata over characters, for patterns and their intersections and complements.

Any thread; pure but for the work it reports. The size of every automaton is bounded; beyond that, `TooLarge` is raised.
Patterns are unanchored: `^` and `$` match only at the start and the end of the text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from llamad.chat.schema.charsets import EVERY, LAST
from llamad.chat.schema.expressions import Ranges, normal
from llamad.chat.schema.regex import Anchor, Cat, Or, Set, Times, Tree

MOST_STATES = 3_000
MOST_POSITIONS = 20_000

Moves = list[tuple[int, int, int]]  # first and last code point, the state that follows; sorted
Spend = Callable[[int], None]


class TooLarge(ValueError):
    pass


class Automaton:
    """State 0 is the start; a character without a transition is rejected."""

    def __init__(self, moves: list[Moves], accepts: list[bool]) -> None:
        self.moves = moves
        self.accepts = accepts

    @property
    def is_empty(self) -> bool:
        return not any(self.accepts)

    def matches(self, text: str) -> bool:
        state = 0
        for c in text:
            state = _follow(self.moves[state], ord(c))
            if state < 0:
                return False
        return self.accepts[state]

    def trimmed(self) -> Automaton:
        """Return the automaton without the states from which no accepting state can be reached."""
        users: list[list[int]] = [[] for _ in self.moves]
        for state, exits in enumerate(self.moves):
            for _, _, after in exits:
                users[after].append(state)
        alive = {state for state, accepting in enumerate(self.accepts) if accepting}
        stack = list(alive)
        while stack:
            for user in users[stack.pop()]:
                if user not in alive:
                    alive.add(user)
                    stack.append(user)
        kept = [0, *sorted(alive - {0})]
        number = {state: i for i, state in enumerate(kept)}
        moves: list[Moves] = [
            [(a, b, number[to]) for a, b, to in self.moves[state] if to in alive] for state in kept
        ]
        return Automaton(moves, [self.accepts[state] for state in kept])

    def universal(self) -> set[int]:
        """Return the states after which every text is accepted."""
        states = {
            state
            for state, moves in enumerate(self.moves)
            if self.accepts[state] and normal((a, b) for a, b, _ in moves) in (EVERY, ((0, LAST),))
        }
        while True:
            fewer = {state for state in states if all(to in states for _, _, to in self.moves[state])}
            if fewer == states:
                return states
            states = fewer


def everything() -> Automaton:
    return Automaton([[(a, b, 0) for a, b in EVERY]], [True])


def of_texts(texts: Iterable[str]) -> Automaton:
    """Return an automaton that accepts exactly these texts."""
    tree: list[dict[int, int]] = [{}]
    accepts = [False]
    for text in texts:
        state = 0
        for c in text:
            if ord(c) not in tree[state]:
                tree[state][ord(c)] = len(tree)
                tree.append({})
                accepts.append(False)
            state = tree[state][ord(c)]
        accepts[state] = True
    return Automaton([[(c, c, to) for c, to in sorted(children.items())] for children in tree], accepts)


def of_length(least: int, most: int | None) -> Automaton:
    last = least if most is None else most
    if last > MOST_STATES:
        raise TooLarge
    moves: list[Moves] = [[(a, b, min(i + 1, last)) for a, b in EVERY] for i in range(last)]
    moves.append([(a, b, last) for a, b in EVERY] if most is None else [])
    return Automaton(moves, [i >= least for i in range(last + 1)])


def together(automata: Sequence[tuple[Automaton, bool]], spend: Spend, limit: int = MOST_STATES) -> Automaton:
    """Return the intersection of the automata; one whose flag is False is complemented first."""
    number = {tuple(0 for _ in automata): 0}
    states = list(number)
    moves: list[Moves] = []
    accepts = []
    for state in states:
        accepts.append(
            all(
                (at >= 0 and automaton.accepts[at]) == must_match
                for at, (automaton, must_match) in zip(state, automata, strict=True)
            )
        )
        tables = [
            automaton.moves[at] if at >= 0 else [] for at, (automaton, _) in zip(state, automata, strict=True)
        ]
        cuts = {0, 0xD800, 0xE000}
        for table in tables:
            for first, last, _ in table:
                cuts |= {first, last + 1}
        bounds = [*sorted(cuts - {LAST + 1}), LAST + 1]
        spend(len(bounds) * len(automata))
        here: Moves = []
        for low, end in pairwise(bounds):
            after = tuple(_follow(table, low) for table in tables)
            hopeless = any(at < 0 and must_match for at, (_, must_match) in zip(after, automata, strict=True))
            if low == 0xD800 or hopeless:
                continue
            if after not in number:
                if len(number) >= limit:
                    raise TooLarge
                number[after] = len(number)
                states.append(after)
            _append(here, low, end - 1, number[after])
        moves.append(here)
    return Automaton(moves, accepts).trimmed()


def of_pattern(tree: Tree, spend: Spend, limit: int = MOST_STATES) -> Automaton:
    return _Positions(tree, spend).determined(limit).trimmed()


def _follow(moves: Moves, code: int) -> int:
    i = bisect_right(moves, (code, LAST + 1, 0)) - 1
    return moves[i][2] if i >= 0 and moves[i][0] <= code <= moves[i][1] else -1


def _append(moves: Moves, low: int, high: int, to: int) -> None:
    if moves and moves[-1][1] + 1 == low and moves[-1][2] == to:
        moves[-1] = (moves[-1][0], high, to)
    else:
        moves.append((low, high, to))


class _Positions:
    """A nondeterministic automaton, which `determined` turns into a deterministic one.

    Each position has at most one kind of exit: empty steps, steps by a character, or a step past an anchor.
    """

    def __init__(self, tree: Tree, spend: Spend) -> None:
        self.free: list[list[int]] = []
        self.by_char: list[tuple[Ranges, int] | None] = []
        self.by_anchor: list[tuple[Anchor, int] | None] = []
        self.spend = spend
        self.final = self.new()
        self.by_char[self.final] = (EVERY, self.final)
        self.start = self.new()
        again = self.new()
        self.by_char[again] = (EVERY, self.start)
        self.free[self.start] = [again, self.before(tree, self.final)]

    def new(self) -> int:
        if len(self.free) >= MOST_POSITIONS:
            raise TooLarge
        self.free.append([])
        self.by_char.append(None)
        self.by_anchor.append(None)
        return len(self.free) - 1

    def before(self, tree: Tree, after: int) -> int:
        """Return the position from which the tree leads to `after`."""
        match tree:
            case Set(ranges):
                here = self.new()
                self.by_char[here] = (ranges, after)
                return here
            case Anchor():
                here = self.new()
                self.by_anchor[here] = (tree, after)
                return here
            case Cat(parts):
                for part in reversed(parts):
                    after = self.before(part, after)
                return after
            case Or(options):
                here = self.new()
                self.free[here] = [self.before(option, after) for option in options]
                return here
            case Times(body, least, most):
                return self.before_times(body, least, most, after)

    def before_times(self, body: Tree, least: int, most: int | None, after: int) -> int:
        if most is None:
            loop = self.new()
            self.free[loop] = [self.before(body, loop), after]
            after = loop
        else:
            end = after
            for _ in range(most - least):
                here = self.new()
                self.free[here] = [self.before(body, after), end]
                after = here
        for _ in range(least):
            after = self.before(body, after)
        return after

    def closure(self, positions: Iterable[int], begin: bool, end: bool) -> frozenset[int]:
        seen = set(positions)
        stack = list(seen)
        while stack:
            position = stack.pop()
            steps = list(self.free[position])
            anchor = self.by_anchor[position]
            if anchor and (end if anchor[0].at_end else begin):
                steps.append(anchor[1])
            for step in steps:
                if step not in seen:
                    seen.add(step)
                    stack.append(step)
        self.spend(len(seen))
        return frozenset((self.final,)) if self.final in seen and not end else frozenset(seen)

    def determined(self, limit: int) -> Automaton:
        first = self.closure([self.start], begin=True, end=False)
        states = [first]
        number: dict[frozenset[int], int] = {}
        moves: list[Moves] = []
        accepts: list[bool] = []
        for state in states:
            accepts.append(self.final in self.closure(state, begin=not moves, end=True))
            here: Moves = []
            for low, high, targets in _split(edge for p in state if (edge := self.by_char[p])):
                self.spend(len(targets))
                after = self.closure(targets, begin=False, end=False)
                if after not in number:
                    if len(states) >= limit:
                        raise TooLarge
                    number[after] = len(states)
                    states.append(after)
                _append(here, low, high, number[after])
            moves.append(here)
        return Automaton(moves, accepts)


def _split(edges: Iterable[tuple[Ranges, int]]) -> Iterable[tuple[int, int, frozenset[int]]]:
    """Split the characters into ranges whose characters have the same targets; yield each with its targets."""
    changes: dict[int, list[tuple[bool, int]]] = {}
    for ranges, to in edges:
        for low, high in ranges:
            changes.setdefault(low, []).append((True, to))
            changes.setdefault(high + 1, []).append((False, to))
    open_now: dict[int, int] = {}
    cuts = sorted(changes)
    for cut, following in zip(cuts, [*cuts[1:], LAST + 1], strict=True):
        for opens, to in changes[cut]:
            open_now[to] = open_now.get(to, 0) + (1 if opens else -1)
        targets = frozenset(to for to, times in open_now.items() if times > 0)
        if targets and following > cut:
            yield cut, following - 1, targets
