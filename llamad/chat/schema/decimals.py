"""Expressions for decimal numbers within bounds, and for multiples of an integer or a decimal fraction.

Each conversion runs on one thread. Only rules are added, nothing else changes. Numbers are written without an exponent,
and never as -0.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from llamad.chat.schema.charsets import digits_in
from llamad.chat.schema.expressions import NEVER, Chars, Expr, Literal, Reference, alt, normal, opt, rep, seq
from llamad.chat.schema.rules import Rules

DIGIT = Chars(((0x30, 0x39),))
FIRST = Chars(((0x31, 0x39),))
_NOUGHTS = rep(Literal("0"), 0, None)


class Bound(msgspec.Struct, frozen=True):
    value: Fraction
    is_out: bool = False  # the value itself is not allowed

    @property
    def whole(self) -> int:
        return self.value.numerator // self.value.denominator

    @property
    def is_whole(self) -> bool:
        return self.value.denominator == 1


def places(value: Fraction) -> int | None:
    """Return how many decimal places the value has, or None if they never end."""
    left, n_places = value.denominator, 0
    for prime in (2, 5):
        n = 0
        while left % prime == 0:
            left //= prime
            n += 1
        n_places = max(n_places, n)
    return n_places if left == 1 else None


def decimals(low: Bound | None, high: Bound | None, most: int | None) -> Expr:
    """Return the expression for the numbers between the bounds, with at most `most` decimal places."""
    nought = Bound(Fraction(0))
    options: list[Expr] = []
    if high is None or high.value > 0 or (high.value == 0 and not high.is_out):
        options.append(_from(low if low is not None and low.value >= 0 else nought, high, most))
    if low is None or low.value < 0:
        least = (
            Bound(-high.value, high.is_out)
            if high is not None and high.value < 0
            else Bound(Fraction(0), True)
        )
        largest = None if low is None else Bound(-low.value, low.is_out)
        options.append(seq(Literal("-"), _from(least, largest, most)))
    return alt(options)


def _from(low: Bound, high: Bound | None, most: int | None) -> Expr:
    """Return the expression for the numbers from `low`, which is not negative, to `high`."""
    free = _point(_Tail(None, None, most))
    if high is None:
        first = seq(Literal(str(low.whole)), _point(_Tail(_digits_of(low), None, most, low.is_out)))
        return alt([first, seq(natural(low.whole + 1, None), free)])
    if low.whole == high.whole:
        tail = _Tail(_digits_of(low), _digits_of(high), most, low.is_out, high.is_out)
        return seq(Literal(str(low.whole)), _point(tail))
    first = seq(Literal(str(low.whole)), _point(_Tail(_digits_of(low), None, most, low.is_out)))
    last = seq(Literal(str(high.whole)), _point(_Tail(None, _digits_of(high), most, False, high.is_out)))
    between = natural(low.whole + 1, high.whole - 1)
    return alt([first, seq(between, free), last]) if low.value <= high.value else NEVER


def _digits_of(bound: Bound) -> str:
    """Return the digits after the point, without zeros at the end."""
    n = places(bound.value) or 0
    rest = (bound.value - bound.whole) * 10**n
    return str(int(rest)).rjust(n, "0")[:n] if n else ""


class _Tail(msgspec.Struct, frozen=True):
    """The remaining digits after the point, between two bounds; a bound that no longer matters is None."""

    low: str | None
    high: str | None
    left: int | None = None  # how many more digits there may be
    low_out: bool = False
    high_out: bool = False

    @property
    def may_end(self) -> bool:
        above = self.low is None or (not self.low and not self.low_out)
        return above and (self.high is None or bool(self.high) or not self.high_out)

    def after(self, digit: int) -> _Tail | None:
        low, high = self.low, self.high
        if self.left == 0:
            return None
        if low is not None:
            least = int(low[0]) if low else 0
            if digit < least:
                return None
            low = low[1:] if digit == least else None
        if high is not None:
            most = int(high[0]) if high else 0
            if digit > most or (not high and self.high_out):
                return None
            high = high[1:] if digit == most else None
        left = None if self.left is None else self.left - 1
        return _Tail(low, high, left, self.low_out, self.high_out)


def _point(tail: _Tail) -> Expr:
    more = seq(Literal("."), _more(tail))
    return opt(more) if tail.may_end else more


def _more(tail: _Tail) -> Expr:
    """Return the expression for the remaining digits, of which there is at least one."""
    ways: dict[_Tail, list[int]] = {}
    for digit in range(10):
        after = tail.after(digit)
        if after is not None:
            ways.setdefault(after, []).append(digit)
    return alt(seq(digits(values), _rest(after)) for after, values in ways.items())


def _rest(tail: _Tail) -> Expr:
    if tail.low is None and tail.high is None:
        return rep(DIGIT, 0, tail.left)
    if tail.low == "" and not tail.low_out:
        return _rest(msgspec.structs.replace(tail, low=None))
    if tail.high == "":
        only = tail.low is None and not tail.high_out
        return rep(Literal("0"), 0, tail.left) if only else NEVER
    if tail.low == "" and tail.high is None and tail.left is None:
        return seq(_NOUGHTS, FIRST, rep(DIGIT, 0, None))
    more = _more(tail)
    return opt(more) if tail.may_end else more


# --- integers ---------------------------------------------------------------------------------------------------


def natural(low: int, high: int | None) -> Expr:
    """Return the expression for the integers from `low` to `high`, separately for each number of digits, because
    leading zeros are not written."""
    if high is not None and low > high:
        return NEVER
    if low == 0:
        return alt([Literal("0"), natural(1, high)])
    options: list[Expr] = []
    for width in range(len(str(low)), len(str(low if high is None else high)) + 1):
        first, last = 10 ** (width - 1), 10**width - 1
        span = (max(first, low), last if high is None else min(last, high))
        if span == (first, last) and high is not None:
            continue  # all numbers with this many digits; these are added below
        options.append(digits_in((span,), width, 10, digits))
    fewest = len(str(low)) if low == 10 ** (len(str(low)) - 1) else len(str(low)) + 1
    if high is None:
        options.append(seq(FIRST, rep(DIGIT, len(str(low)), None)))
    else:
        most = len(str(high)) if high == 10 ** len(str(high)) - 1 else len(str(high)) - 1
        if fewest <= most:
            options.append(seq(FIRST, rep(DIGIT, fewest - 1, most - 1)))
    return alt(options)


def digits(values: Iterable[int]) -> Expr:
    each = list(values)
    return Literal(str(each[0])) if len(each) == 1 else Chars(normal((0x30 + d, 0x30 + d) for d in each))


def multiples(rules: Rules, step: int) -> Expr:
    """Return the expression for the multiples of `step` above 0: an automaton of remainders. The zeros at the end of
    `step` are also at the end of every multiple."""
    noughts = 0
    while step % 10 == 0:
        step, noughts = step // 10, noughts + 1
    end = rep(Literal("0"), noughts, noughts)
    names: dict[int, str] = {}

    def after(remainder: int, first: int) -> Expr:
        ways: dict[int, list[int]] = {}
        for digit in range(first, 10):
            ways.setdefault((remainder * 10 + digit) % step, []).append(digit)
        return alt(seq(digits(values), named(to)) for to, values in ways.items())

    def named(remainder: int) -> Expr:
        if remainder not in names:
            names[remainder] = rules.reserve(f"multiple-of-{step}")
            waiting.append(remainder)
        return Reference(names[remainder])

    waiting: list[int] = []
    start = after(0, 1)
    while waiting:
        remainder = waiting.pop()
        more = after(remainder, 0)
        rules.define(names[remainder], alt([more, end]) if remainder == 0 else more)
    return start


def fractional(rules: Rules, units: int, n_places: int) -> Expr:
    """Return the expression for the multiples of `units` / 10^`n_places` above 0. The remainder of the whole part
    decides which fractions may follow it."""
    scale = 10**n_places
    names: dict[int, str] = {}
    waiting: list[int] = []

    def fraction(remainder: int) -> Expr:
        first = -remainder * scale % units
        return alt(_places(value, n_places) for value in range(first or units, scale, units))

    def after(remainder: int, first: int) -> Expr:
        ways: dict[int, list[int]] = {}
        for digit in range(first, 10):
            ways.setdefault((remainder * 10 + digit) % units, []).append(digit)
        return alt(seq(digits(values), named(to)) for to, values in ways.items())

    def named(remainder: int) -> Expr:
        if remainder not in names:
            names[remainder] = rules.reserve("multiple-of-fraction")
            waiting.append(remainder)
        return Reference(names[remainder])

    start = alt([after(0, 1), seq(Literal("0"), fraction(0))])
    while waiting:
        remainder = waiting.pop()
        whole = opt(_places(0, n_places)) if remainder * scale % units == 0 else NEVER
        rules.define(names[remainder], alt([after(remainder, 0), whole, fraction(remainder)]))
    return start


def _places(value: int, n_places: int) -> Expr:
    """Return the expression for the point and its digits; zeros at the end may be left out."""
    text = f"{value:0{n_places}}".rstrip("0") or "0"
    return seq(Literal("." + text), rep(Literal("0"), 0, n_places - len(text)))
