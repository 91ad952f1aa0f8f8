"""Sets of characters, and how JSON strings spell them.

Any thread; pure but for the rules it adds. Knows JSON strings, not schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from llamad.chat.schema.expressions import (
    NEVER,
    Chars,
    Expr,
    Literal,
    Ranges,
    Reference,
    alt,
    normal,
    rep,
    seq,
)
from llamad.chat.schema.rules import Rules

LAST = 0x10FFFF
EVERY: Ranges = ((0, 0xD7FF), (0xE000, LAST))
DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACES: Ranges = (
    (9, 13),
    (32, 32),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
LINE_ENDS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))

_RAW: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, LAST))
_PLAIN: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7E))  # ASCII characters with only one spelling
_BY_CODE: Ranges = ((0, 0x1F), (0x7F, 0xD7FF), (0xE000, 0xFFFF))  # may be written as \u and four digits
_SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 0x22: '"', 0x5C: "\\"}
_HEX = "0123456789abcdef"


def union(*sets: Iterable[tuple[int, int]]) -> Ranges:
    return normal(pair for ranges in sets for pair in ranges)


def complement(ranges: Ranges) -> Ranges:
    gaps = []
    start = 0
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        gaps.append((start, LAST))
    return intersection(tuple(gaps), EVERY)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    common = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            common.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def spelled(rules: Rules, ranges: Ranges) -> Expr:
    """Return the expression for one character of the set: raw if JSON allows it, else escaped; beyond ASCII both."""
    if ranges == EVERY:
        return any_char(rules)
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and intersection(ranges, _PLAIN):
        return Literal(chr(ranges[0][0]))
    return rules.shared("chars", _spelled(ranges))


def any_char(rules: Rules) -> Reference:
    """Return the rule for one character in any JSON spelling, without lone surrogates."""

    def make() -> Expr:
        escapes = [
            Chars(normal((ord(c), ord(c)) for c in '"\\/bfnrt')),
            _by_code(((0, 0xD7FF), (0xE000, LAST))),
        ]
        return alt([Chars(_RAW), seq(Literal("\\"), alt(escapes))])

    return rules.once("char", make)


def _spelled(ranges: Ranges) -> Expr:
    raw = intersection(ranges, _RAW)
    short = [letter for code, letter in _SHORT.items() if intersection(ranges, ((code, code),))]
    escapes = [Chars(normal((ord(c), ord(c)) for c in short))] if short else []
    coded = _by_code(intersection(ranges, (*_BY_CODE, (0x10000, LAST))))
    return alt([Chars(raw) if raw else NEVER, seq(Literal("\\"), alt([*escapes, coded]))])


@lru_cache(maxsize=512)
def _by_code(ranges: Ranges) -> Expr:
    """Return the expression for u and four digits; above U+FFFF for the two surrogates."""
    single = intersection(ranges, ((0, 0xFFFF),))
    halves: dict[Ranges, list[tuple[int, int]]] = {}
    for low, high in intersection(ranges, ((0x10000, LAST),)):
        for lead, tail in _halves(low - 0x10000, high - 0x10000):
            halves.setdefault((tail,), []).append(lead)
    pairs = [seq(_hex(normal(leads)), Literal("\\u"), _hex(tail)) for tail, leads in halves.items()]
    return seq(Literal("u"), alt([_hex(single), *pairs]))


def _halves(low: int, high: int) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the surrogates of a range of code points above U+FFFF (minus 0x10000), as products of ranges."""
    while low <= high:
        lead, tail = divmod(low, 0x400)
        if tail == 0 and high - low >= 0x3FF:
            last = (high + 1) // 0x400 - 1
            yield (0xD800 + lead, 0xD800 + last), (0xDC00, 0xDFFF)
            low = (last + 1) * 0x400
        else:
            end = min(high, lead * 0x400 + 0x3FF)
            yield (0xD800 + lead, 0xD800 + lead), (0xDC00 + tail, 0xDC00 + end % 0x400)
            low = end + 1


def _hex(ranges: Ranges) -> Expr:
    return digits_in(ranges, 4, 16, _hex_digits)


def _hex_digits(values: Iterable[int]) -> Expr:
    codes = {ord(c) for value in values for c in (_HEX[value], _HEX[value].upper())}
    return Chars(normal((code, code) for code in codes))


def digits_in(ranges: Ranges, width: int, base: int, digits: Callable[[Iterable[int]], Expr]) -> Expr:
    """Return the expression for numbers of exactly `width` digits within the ranges, with no prefix written twice."""
    if not ranges:
        return NEVER
    if ranges == ((0, base**width - 1),):
        return rep(digits(range(base)), width, width)
    size = base ** (width - 1)
    by_tail: dict[Ranges, list[int]] = {}
    for digit in range(base):
        here = intersection(ranges, ((digit * size, digit * size + size - 1),))
        if here:
            tail = tuple((low - digit * size, high - digit * size) for low, high in here)
            by_tail.setdefault(tail, []).append(digit)
    if width == 1:
        return digits([digit for same in by_tail.values() for digit in same])
    return alt(seq(digits(same), digits_in(tail, width - 1, base, digits)) for tail, same in by_tail.items())
