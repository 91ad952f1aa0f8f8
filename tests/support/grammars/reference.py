"""A second, slow reader of GBNF, written apart from the engine's: is a text in the language, and give me a text.

Recognition finds, for an expression and a place, all the places where it can end; that is remembered, so it takes
polynomial time. It needs grammars without left recursion. Sentences are drawn at random, and kept short by a budget.
"""

from __future__ import annotations

import random
import re
import sys
from typing import Any

Expr = tuple[
    Any, ...
]  # ("chars", negated, ranges) ("seq", …) ("alt", …) ("rep", body, least, most) ("ref", name)

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "[": "[", "]": "]", "-": "-"}
HEX = {"x": 2, "u": 4, "U": 8}
ENDLESS = 1 << 60
NEVER_ENDS = 1 << 40


class Grammar:
    def __init__(self, text: str) -> None:
        self.rules: dict[str, Expr] = {}
        reader = _Reader(text)
        while reader.blanks():
            name = reader.name()
            reader.blanks()
            reader.expect("::=")
            assert name not in self.rules, f"{name} is defined twice"
            self.rules[name] = reader.options()
        for body in self.rules.values():
            for used in _references(body):
                assert used in self.rules, f"{used} is not defined"
        assert "root" in self.rules
        self._costs = self._cheapest()

    def accepts(self, text: str | bytes) -> bool:
        if isinstance(text, bytes):
            text = text.decode()
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(200_000)
        try:
            return len(text) in _Match(self.rules, text).ends(("ref", "root"), 0)
        finally:
            sys.setrecursionlimit(before)

    def sentence(self, source: random.Random, budget: int = 60) -> str:
        """Below the budget everything may come; beyond it the shortest way out is taken."""
        out: list[str] = []
        stack: list[Expr] = [("ref", "root")]
        steps = 0
        while stack:
            expr = stack.pop()
            steps += 1
            short = len(out) > budget or steps > 40 * budget
            match expr[0]:
                case "chars":
                    out.append(_draw(source, expr))
                case "ref":
                    stack.append(self.rules[expr[1]])
                case "seq":
                    stack.extend(reversed(expr[1:]))
                case "alt":
                    costs = [self._cost(option) for option in expr[1:]]
                    fit = [o for o, c in zip(expr[1:], costs, strict=True) if c < NEVER_ENDS]
                    stack.append(expr[1 + costs.index(min(costs))] if short else source.choice(fit))
                case "rep":
                    stack.extend([expr[1]] * _times(source, expr, short, self._cost(expr[1])))
        return "".join(out)

    def _cheapest(self) -> dict[str, int]:
        self._costs = dict.fromkeys(self.rules, NEVER_ENDS)
        while True:
            costs = {name: min(NEVER_ENDS, 1 + self._cost(body)) for name, body in self.rules.items()}
            if costs == self._costs:
                return costs
            self._costs = costs

    def _cost(self, expr: Expr) -> int:
        match expr[0]:
            case "ref":
                return self._costs[expr[1]]
            case "seq":
                return min(NEVER_ENDS, sum(map(self._cost, expr[1:])))
            case "alt":
                return min(map(self._cost, expr[1:]))
            case "rep":
                return min(NEVER_ENDS, expr[2] * self._cost(expr[1])) if expr[2] else 0
        return 1


def _times(source: random.Random, expr: Expr, short: bool, cost: int) -> int:
    least, most = expr[2], expr[3]
    if short or cost >= NEVER_ENDS:
        return least
    return least + min(most - least, source.choice([0, 0, 1, 1, 2, 3, 7]))


def _draw(source: random.Random, expr: Expr) -> str:
    _, negated, ranges = expr
    if not negated:
        low, high = source.choice(ranges)
        if high - low > 200:  # favour characters near the borders, where mistakes live
            return chr(
                source.choice(
                    [low, high, low + 1, high - 1, source.randint(low, high), source.randint(low, high)]
                )
            )
        return chr(source.randint(low, high))
    while True:
        code = source.choice(
            [source.randint(0x20, 0x7E), source.randint(0, 0x2FFF), source.randint(0x1F300, 0x1F5FF)]
        )
        if not any(low <= code <= high for low, high in ranges) and not 0xD800 <= code <= 0xDFFF:
            return chr(code)


def _references(expr: Expr) -> list[str]:
    names = [expr[1]] if expr[0] == "ref" else []
    for part in expr[1:]:
        if isinstance(part, tuple) and part and isinstance(part[0], str):
            names += _references(part)
    return names


class _Match:
    def __init__(self, rules: dict[str, Expr], text: str) -> None:
        self.rules = rules
        self.text = text
        self.known: dict[tuple[int, int], frozenset[int]] = {}
        self.keep: list[Expr] = []  # so that no id is used twice

    def ends(self, expr: Expr, at: int) -> frozenset[int]:
        if expr[0] == "chars":
            if at >= len(self.text):
                return frozenset()
            code = ord(self.text[at])
            inside = any(low <= code <= high for low, high in expr[2])
            return frozenset([at + 1]) if inside != expr[1] else frozenset()
        key = (id(expr), at)
        if key not in self.known:
            self.keep.append(expr)
            self.known[key] = self.work(expr, at)
        return self.known[key]

    def work(self, expr: Expr, at: int) -> frozenset[int]:
        match expr[0]:
            case "ref":
                return self.ends(self.rules[expr[1]], at)
            case "alt":
                return frozenset().union(*(self.ends(option, at) for option in expr[1:]))
            case "seq":
                places = frozenset([at])
                for part in expr[1:]:
                    places = frozenset().union(*(self.ends(part, place) for place in places))
                return places
        return self.repeated(expr, at)

    def repeated(self, expr: Expr, at: int) -> frozenset[int]:
        _, body, least, most = expr
        places = frozenset([at])
        reached = places if least == 0 else frozenset()
        for times in range(1, most + 1):
            after = frozenset().union(*(self.ends(body, place) for place in places))
            if not after or (times > least and after <= reached):
                break
            if times >= least:
                reached |= after
            places = after
        return reached


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def blanks(self) -> bool:
        """Skips blanks and comments; whether anything follows."""
        match = re.compile(r"(?:\s|#[^\n]*)*").match(self.text, self.at)
        assert match
        self.at = match.end()
        return self.at < len(self.text)

    def same_line(self) -> None:
        match = re.compile(r"(?:\s|#[^\n]*)*" if self.depth else r"[ \t]*(?:#[^\n]*)?").match(
            self.text, self.at
        )
        assert match
        self.at = match.end()

    def name(self) -> str:
        match = re.compile(r"[a-zA-Z0-9-]+").match(self.text, self.at)
        assert match, f"a name is missing at {self.text[self.at : self.at + 20]!r}"
        self.at = match.end()
        return match[0]

    def expect(self, token: str) -> None:
        assert self.text.startswith(token, self.at), (
            f"{token} is missing at {self.text[self.at : self.at + 20]!r}"
        )
        self.at += len(token)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def options(self) -> Expr:
        sequences = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            sequences.append(self.sequence())
        return sequences[0] if len(sequences) == 1 else ("alt", *sequences)

    def sequence(self) -> Expr:
        parts: list[Expr] = []
        while True:
            self.same_line()
            if self.peek() in ("", "|", ")", "\n"):
                return parts[0] if len(parts) == 1 else ("seq", *parts)
            parts.append(self.repeated(self.atom()))

    def atom(self) -> Expr:
        c = self.peek()
        if c == "(":
            self.at += 1
            self.depth += 1
            assert self.depth < 200
            options = self.options()
            self.same_line()
            self.depth -= 1
            self.expect(")")
            return options
        if c == '"':
            return self.literal()
        if c == "[":
            return self.char_class()
        if c == ".":
            self.at += 1
            return ("chars", True, ())
        return ("ref", self.name())

    def literal(self) -> Expr:
        self.at += 1
        chars: list[Expr] = []
        while self.peek() != '"':
            code = self.char()
            chars.append(("chars", False, ((code, code),)))
        self.at += 1
        return chars[0] if len(chars) == 1 else ("seq", *chars)

    def char_class(self) -> Expr:
        self.at += 1
        negated = self.peek() == "^"
        self.at += negated
        ranges = []
        while self.peek() != "]":
            low = high = self.char()
            if self.peek() == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                high = self.char()
            assert low <= high
            ranges.append((low, high))
        self.at += 1
        return ("chars", negated, tuple(ranges))

    def char(self) -> int:
        c = self.peek()
        assert c, "the text ends inside a literal or class"
        self.at += 1
        if c != "\\":
            return ord(c)
        kind = self.peek()
        self.at += 1
        if kind in ESCAPES:
            return ord(ESCAPES[kind])
        digits = self.text[self.at : self.at + HEX[kind]]
        assert len(digits) == HEX[kind]
        self.at += HEX[kind]
        return int(digits, 16)

    def repeated(self, body: Expr) -> Expr:
        match = re.compile(r"[*+?]|\{([0-9]+)(,?)([0-9]*)\}").match(self.text, self.at)
        if not match:
            return body
        self.at = match.end()
        bounds = {"*": (0, ENDLESS), "+": (1, ENDLESS), "?": (0, 1)}
        if match[0] in bounds:
            return ("rep", body, *bounds[match[0]])
        most = int(match[3]) if match[3] else ENDLESS if match[2] else int(match[1])
        assert int(match[1]) <= most
        return ("rep", body, int(match[1]), most)
