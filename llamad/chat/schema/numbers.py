"""Numbers: bounds and `multipleOf` of integers and decimals.

Each conversion runs on one thread. Bounds are exact; a number within bounds has no exponent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from llamad.chat.schema.constants import of_values
from llamad.chat.schema.decimals import DIGIT, FIRST, Bound, decimals, fractional, multiples, natural, places
from llamad.chat.schema.document import Node
from llamad.chat.schema.errors import Report
from llamad.chat.schema.expressions import NEVER, Chars, Expr, Literal, alt, normal, opt, rep, seq
from llamad.chat.schema.formats import INTEGERS, NUMBERS, PATTERNS
from llamad.chat.schema.rules import Rules

MOST_DIGITS = 60
MOST_REMAINDERS = 128  # the largest divisor, without the zeros at its end, whose multiples are not listed
MOST_MULTIPLES = 1000  # how many multiples may be listed
MOST_PLACES = 3  # decimal places of a fraction whose multiples are not listed


def exact(value: int | float) -> Fraction:
    """Return the exact number as it is written: 0.1 is a tenth."""
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def bounds(node: Node) -> tuple[Fraction | None, bool, Fraction | None, bool]:
    """Return the bounds of one schema, and whether each is exclusive; also with draft 4's booleans."""
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
    step, at = 1, ""
    for node in owns:
        own_low, low_out, own_high, high_out = bounds(node)
        lows = [] if own_low is None else [math.floor(own_low) + 1 if low_out else math.ceil(own_low)]
        highs = [] if own_high is None else [math.ceil(own_high) - 1 if high_out else math.floor(own_high)]
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
        if "multipleOf" in node.value:
            step, at = math.lcm(step, exact(node.get("multipleOf")).numerator), node.pointer
    if step > 1:
        listed = _multiples(rules, report, step, low, high)
        if listed is not None:
            return listed
        report.refuse(
            at, "multipleOf", f"multiples of {_shown(step)} cannot be honoured, or not in this range"
        )
    if low is None and high is None:
        return rules.once("integer", lambda: seq(opt(Literal("-")), _whole()))
    return rules.shared("integer", in_range(low, high))


def _multiples(rules: Rules, report: Report, step: int, low: int | None, high: int | None) -> Expr | None:
    """Return the expression for the multiples, or None if there is none. Few multiples are listed; for many, the range
    can only decide the sign."""
    if low is not None and high is not None and (high - low) // step < MOST_MULTIPLES:
        listed = range(-(-low // step) * step, high + 1, step)
        return of_values(rules, report, listed, f"multiple-of-{step}") if listed else NEVER
    if step > MOST_REMAINDERS * 10**MOST_DIGITS or int(str(step).rstrip("0")) > MOST_REMAINDERS:
        return None
    if (low is not None and not -step < low <= step) or (high is not None and not -step <= high < step):
        return None
    some = multiples(rules, step)
    options: list[Expr] = []
    if high is None or high >= step:
        options.append(some)
    if (low is None or low <= 0) and (high is None or high >= 0):
        options.append(Literal("0"))
    if low is None or low <= -step:
        options.append(seq(Literal("-"), some))
    return alt(options)


def _shown(step: int) -> str:
    return str(step) if step < 10**9 else "so large a number"


def number(rules: Rules, report: Report, owns: Iterable[Node]) -> Expr:
    low: Bound | None = None
    high: Bound | None = None
    step: Fraction | None = None
    at = ""
    for node in owns:
        if "multipleOf" in node.value:
            own_step = exact(node.get("multipleOf"))
            step, at = own_step if step is None else _lcm(step, own_step), node.pointer
        own_low, low_out, own_high, high_out = bounds(node)
        for keyword, value in (("minimum", own_low), ("maximum", own_high)):
            if value is not None and not _is_short(value):
                own = keyword if keyword in node.value else f"exclusive{keyword.capitalize()}"
                report.refuse(
                    node.pointer, own, f"a bound may have {MOST_DIGITS} digits on each side of the point"
                )
        if own_low is not None and _is_short(own_low):
            low = max(filter(None, (low, Bound(own_low, low_out))), key=lambda one: (one.value, one.is_out))
        if own_high is not None and _is_short(own_high):
            high = min(
                filter(None, (high, Bound(own_high, high_out))), key=lambda one: (one.value, not one.is_out)
            )
        if _unknown_format(node):
            report.refuse(node.pointer, "format", f'"{node.get("format")}" is not a known format of numbers')
    most = None
    if step is not None:
        most = _decimal_places(step)
        listed = None if most is not None else _steps(rules, report, step, low, high)
        if listed is not None:
            return listed
        if most is None:
            about = "only multiples of 0.1, 0.01, …, of integers, or of few digits without bounds can be"
            report.refuse(at, "multipleOf", f"it cannot be honoured here: {about}")
    if low is not None or high is not None or most is not None:
        return rules.shared("number", decimals(low, high, most))

    def make() -> Expr:
        sign = Chars(normal([(0x2B, 0x2B), (0x2D, 0x2D)]))
        letter = Chars(normal([(0x45, 0x45), (0x65, 0x65)]))
        power = seq(letter, opt(sign), rep(DIGIT, 1, 3))
        return seq(opt(Literal("-")), _whole(), opt(seq(Literal("."), rep(DIGIT, 1, None))), opt(power))

    return rules.once("number", make)


def _decimal_places(step: Fraction) -> int | None:
    """Return the decimal places of a tenth, a hundredth, …, or None for any other step."""
    n = places(step)
    is_one = step.numerator == 1 and n is not None and step.denominator == 10**n
    return n if is_one and n is not None and n <= MOST_DIGITS else None


def _lcm(one: Fraction, other: Fraction) -> Fraction:
    units = math.lcm(one.denominator, other.denominator)
    return Fraction(math.lcm(int(one * units), int(other * units)), units)


def _steps(
    rules: Rules, report: Report, step: Fraction, low: Bound | None, high: Bound | None
) -> Expr | None:
    """Return the expression for the multiples of a fraction, or None if there is none. Few multiples are listed; for
    many, the range can only decide the sign."""
    first = None if low is None else _step_above(step, low)
    last = None if high is None else -_step_above(step, Bound(-high.value, high.is_out))
    n = places(step)
    if n is None or n > MOST_DIGITS:
        return None
    if first is not None and last is not None and last - first < MOST_MULTIPLES:
        listed = [_as_written(step * i) for i in range(first, last + 1)]
        return of_values(rules, report, listed, "multiple-of-fraction") if listed else NEVER
    units = int(step * 10**n)
    if n > MOST_PLACES or units > MOST_REMAINDERS or first not in (None, 0, 1) or last not in (None, 0, -1):
        return None
    some = fractional(rules, units, n)
    options: list[Expr] = []
    if last is None:
        options.append(some)
    if first in (None, 0) and last in (None, 0):
        options.append(seq(Literal("0"), opt(Literal(".0"))))
    if first is None:
        options.append(seq(Literal("-"), some))
    return alt(options)


def _step_above(step: Fraction, low: Bound) -> int:
    """Return the number of steps of the first multiple that is not below the bound."""
    n = math.ceil(low.value / step)
    return n + 1 if low.is_out and n * step == low.value else n


def _as_written(value: Fraction) -> int | float:
    return value.numerator if abs(value) >= 2**53 else float(value)


def _is_short(value: Fraction) -> bool:
    n = places(value)
    return abs(value) < 10**MOST_DIGITS and n is not None and n <= MOST_DIGITS


def only_whole(owns: Iterable[Node]) -> bool:
    """Return whether a `multipleOf` allows no fractions, so that `number` is `integer`."""
    return any("multipleOf" in node.value and exact(node.get("multipleOf")).denominator == 1 for node in owns)


def in_range(low: int | None, high: int | None) -> Expr:
    """Return the expression for exactly the integers from `low` to `high`, without leading zeros and without -0."""
    if low is not None and high is not None and low > high:
        return NEVER
    options = []
    if high is None or high >= 0:
        options.append(natural(max(0, low or 0), high))
    if low is None or low < 0:
        options.append(
            seq(Literal("-"), natural(1 if high is None else max(1, -high), None if low is None else -low))
        )
    return alt(options)


def _whole() -> Expr:
    return alt([Literal("0"), seq(FIRST, rep(DIGIT, 0, None))])


def _unknown_format(node: Node) -> bool:
    """Return whether the node has an unknown format. Formats of strings do not apply to numbers."""
    known = node.get("format")
    return known is not None and known not in NUMBERS and known not in PATTERNS and "type" in node.value
