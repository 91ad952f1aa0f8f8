"""Numbers: `integer` with exact bounds, `number` without.

One conversion, one thread. A range of fractions has no grammar of reasonable size and is rejected by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from llamad.chat.schema.charsets import digits_in
from llamad.chat.schema.document import Node
from llamad.chat.schema.errors import Report
from llamad.chat.schema.expressions import NEVER, Chars, Expr, Literal, alt, normal, opt, rep, seq
from llamad.chat.schema.formats import INTEGERS, NUMBERS, PATTERNS
from llamad.chat.schema.goals import NUMBERS as KEYWORDS
from llamad.chat.schema.rules import Rules

MOST_DIGITS = 60

_DIGIT = Chars(((0x30, 0x39),))
_FIRST = Chars(((0x31, 0x39),))


def exact(value: int | float) -> Fraction:
    """The exact number as written: 0.1 is a tenth."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def bounds(node: Node) -> tuple[Fraction | None, bool, Fraction | None, bool]:
    """The bounds of one schema and whether each is exclusive; also draft 4's booleans."""
    low, high = (exact(node.get(k)) if k in node.value else None for k in ("minimum", "maximum"))
    above, under = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
    low_out, high_out = above is True, under is True
    if above is not None and not isinstance(above, bool) and (low is None or exact(above) >= low):
        low, low_out = exact(above), True
    if under is not None and not isinstance(under, bool) and (high is None or exact(under) <= high):
        high, high_out = exact(under), True
    return low, low_out, high, high_out


def integer(rules: Rules, report: Report, owns: Iterable[Node]) -> Expr:
    low: int | None = None
    high: int | None = None
    for node in owns:
        found_low, low_out, found_high, high_out = bounds(node)
        lows = [] if found_low is None else [math.floor(found_low) + 1 if low_out else math.ceil(found_low)]
        highs = (
            [] if found_high is None else [math.ceil(found_high) - 1 if high_out else math.floor(found_high)]
        )
        if node.get("format") in INTEGERS:
            first, last = INTEGERS[node.get("format")]
            lows, highs = [*lows, first], [*highs, last]
        elif _unknown_format(node):
            report.refuse(node.pointer, "format", f'"{node.get("format")}" is not a known format of integers')
        if any(abs(bound) >= 10**MOST_DIGITS for bound in (*lows, *highs)):
            keyword = next((k for k in ("minimum", "maximum") if k in node.value), "exclusiveMinimum")
            report.refuse(
                node.pointer, keyword, f"bounds of more than {MOST_DIGITS} digits cannot be honoured"
            )
            continue
        low = max((*lows, low) if low is not None else lows, default=None)
        high = min((*highs, high) if high is not None else highs, default=None)
        if "multipleOf" in node.value and 1 % exact(node.get("multipleOf")) != 0:
            report.refuse(node.pointer, "multipleOf", "a grammar cannot do arithmetic")
    if low is None and high is None:
        return rules.once("integer", lambda: seq(opt(Literal("-")), _whole()))
    return rules.shared("integer", in_range(low, high))


def number(rules: Rules, report: Report, owns: Iterable[Node]) -> Expr:
    for node in owns:
        for keyword in sorted(node.value.keys() & KEYWORDS):
            if isinstance(node.get(keyword), bool):
                continue
            about = "use the type integer or an enum, or leave it out"
            report.refuse(
                node.pointer, keyword, f"it cannot be honoured for numbers that may be fractions; {about}"
            )
        if _unknown_format(node):
            report.refuse(node.pointer, "format", f'"{node.get("format")}" is not a known format of numbers')

    def make() -> Expr:
        sign = Chars(normal([(0x2B, 0x2B), (0x2D, 0x2D)]))
        letter = Chars(normal([(0x45, 0x45), (0x65, 0x65)]))
        power = seq(letter, opt(sign), rep(_DIGIT, 1, 3))
        return seq(opt(Literal("-")), _whole(), opt(seq(Literal("."), rep(_DIGIT, 1, None))), opt(power))

    return rules.once("number", make)


def only_whole(owns: Iterable[Node]) -> bool:
    """Whether a `multipleOf` leaves no fractions, so that `number` is `integer`."""
    return any("multipleOf" in node.value and exact(node.get("multipleOf")).denominator == 1 for node in owns)


def in_range(low: int | None, high: int | None) -> Expr:
    """Exactly the integers from `low` to `high`, without leading zeros and without -0."""
    if low is not None and high is not None and low > high:
        return NEVER
    options = []
    if high is None or high >= 0:
        options.append(_natural(max(0, low or 0), high))
    if low is None or low < 0:
        options.append(
            seq(Literal("-"), _natural(1 if high is None else max(1, -high), None if low is None else -low))
        )
    return alt(options)


def _natural(low: int, high: int | None) -> Expr:
    """By number of digits, since leading zeros are not written."""
    if high is not None and low > high:
        return NEVER
    if low == 0:
        return alt([Literal("0"), _natural(1, high)])
    options: list[Expr] = []
    for width in range(len(str(low)), len(str(low if high is None else high)) + 1):
        first, last = 10 ** (width - 1), 10**width - 1
        wanted = (max(first, low), last if high is None else min(last, high))
        if wanted == (first, last) and high is not None:
            continue  # gathered below
        options.append(digits_in((wanted,), width, 10, _digits))
    fewest = len(str(low)) if low == 10 ** (len(str(low)) - 1) else len(str(low)) + 1
    if high is None:
        options.append(seq(_FIRST, rep(_DIGIT, len(str(low)), None)))
    else:
        most = len(str(high)) if high == 10 ** len(str(high)) - 1 else len(str(high)) - 1
        if fewest <= most:
            options.append(seq(_FIRST, rep(_DIGIT, fewest - 1, most - 1)))
    return alt(options)


def _digits(values: Iterable[int]) -> Expr:
    found = list(values)
    return Literal(str(found[0])) if len(found) == 1 else Chars(normal((0x30 + d, 0x30 + d) for d in found))


def _whole() -> Expr:
    return alt([Literal("0"), seq(_FIRST, rep(_DIGIT, 0, None))])


def _unknown_format(node: Node) -> bool:
    """A format of strings does not apply to numbers."""
    known = node.get("format")
    return known is not None and known not in NUMBERS and known not in PATTERNS and "type" in node.value
