"""Computes the size of the result of a string operation, before it is made. Pure functions over plain values.

Arguments that Python itself rejects (a width that is not a number) count as nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import whitespace
from typing import Any

from llamad.chat.template.budget import ELEMENT, LARGE, Budget, Exhausted

PADDING = frozenset(["center", "ljust", "rjust", "zfill"])
SLOW = frozenset(["striptags", "unescape"])  # methods of Markup that take quadratic time on hostile text
ENCODINGS = frozenset(["utf-8", "utf8", "ascii", "latin-1", "latin1"])  # others may be quadratic (idna)
BREAKS = (
    whitespace
    + "\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")
NUMBER = re.compile(r"\d+")


def count_of(value: Any, otherwise: int = 0) -> int:
    return value if isinstance(value, int) else otherwise


def before_method(
    budget: Budget, owner: Any, name: str, args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Raise Exhausted if `owner.name(*args)` would exceed the budget; `owner` has a builtin type."""
    if isinstance(owner, (str, bytes)):
        if len(owner) > LARGE:
            budget.look()
        before = TEXT_METHODS.get(name)
        if before is not None:
            before(budget, owner, args, named)
        if name in SLOW and len(owner) > LARGE:
            raise Exhausted(f"the template calls {name} with a text larger than {LARGE:,} characters")
    elif isinstance(owner, int):
        if name == "to_bytes":
            budget.fit(count_of(args[0] if args else named.get("length")))
    elif name == "append":
        budget.fit(ELEMENT * len(owner))
        budget.left -= ELEMENT
    elif name in ("index", "count"):
        budget.weigh(owner)
        budget.weigh(args)
    else:
        for one in args:
            if isinstance(one, tuple):  # it will be hashed
                budget.weigh(one)


def _pad(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    if args:
        budget.fit(max(len(owner), count_of(args[0])))


def _tabs(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    size = count_of(args[0] if args else named.get("tabsize", 8))
    tab = "\t" if isinstance(owner, str) else b"\t"
    budget.fit(len(owner) + owner.count(tab) * max(size, 0))


def _replace(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    if len(args) >= 2:
        limit = args[2] if len(args) > 2 else named.get("count")
        replaced(budget, owner, args[0], args[1], limit)


def replaced(budget: Budget, text: Any, old: Any, new: Any, limit: Any) -> None:
    if not all(isinstance(one, type(text) if isinstance(text, bytes) else str) for one in (text, old, new)):
        return
    if len(new) > len(old):
        n = text.count(old)
        if isinstance(limit, int) and limit >= 0:
            n = min(n, limit)
        budget.fit(len(text) + n * (len(new) - len(old)))


def _join(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    if args and hasattr(args[0], "__len__"):
        budget.fit(budget.weigh(args[0]) + len(owner) * len(args[0]))


def _split(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    if len(owner) * ELEMENT <= budget.size:
        return
    if not isinstance(owner, str):
        budget.fit(len(owner) * ELEMENT)
    most = count_of(args[1] if len(args) > 1 else named.get("maxsplit"), -1)
    sep = args[0] if args else named.get("sep")
    if isinstance(sep, str) and sep:
        pieces = owner.count(sep)
    else:
        pieces = sum(map(owner.count, BREAKS))
    budget.fit((pieces if most < 0 else min(pieces, most)) * ELEMENT)


def _lines(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    _split(budget, owner, (), {})


def _translate(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    if args and isinstance(args[0], Mapping):
        longest = max((len(v) for v in args[0].values() if isinstance(v, str)), default=1)
        budget.fit(len(owner) * max(longest, 1))


def _codec(budget: Budget, owner: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
    name = args[0] if args else named.get("encoding", "utf-8")
    if not isinstance(name, str) or name.lower() not in ENCODINGS:
        raise Exhausted("a template may only use the encodings utf-8, ascii and latin-1")


Before = Callable[[Budget, Any, tuple[Any, ...], dict[str, Any]], None]
TEXT_METHODS: dict[str, Before] = {
    **dict.fromkeys(PADDING, _pad),
    "expandtabs": _tabs,
    "replace": _replace,
    "join": _join,
    "split": _split,
    "rsplit": _split,
    "splitlines": _lines,
    "translate": _translate,
    "encode": _codec,
    "decode": _codec,
}


def before_binop(budget: Budget, operator: str, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _numbers(budget, operator, left, right)
    elif operator == "+":
        if isinstance(left, (str, bytes)) and isinstance(right, (str, bytes)):
            budget.fit(len(left) + len(right))
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            budget.fit((len(left) + len(right)) * ELEMENT)
    elif operator == "*":
        for many, n in ((left, right), (right, left)):
            if isinstance(many, (str, bytes, list, tuple)) and isinstance(n, int):
                budget.fit(len(many) * n * (1 if isinstance(many, (str, bytes)) else ELEMENT))
    elif operator == "%" and isinstance(left, (str, bytes)):
        percent(budget, left, right)


def _numbers(budget: Budget, operator: str, left: int, right: int) -> None:
    budget.number(left)
    budget.number(right)
    if operator == "**" and right > 0 and abs(left) > 1:
        budget.number(1 << min(left.bit_length() * right, 1 << 20))


def percent(budget: Budget, text: Any, values: Any) -> None:
    """Check `text % values`: widths and precisions count, and the format may use each value of a mapping many times."""
    if isinstance(text, bytes):
        budget.fit(len(text) * ELEMENT)
        text = text.decode("latin-1")
    size = len(text)
    places = 0
    for match in PERCENT.finditer(text):
        places += 1
        for number in match.groups():
            if number == "*":
                given = values if isinstance(values, tuple) else (values,)
                size += max((abs(one) for one in given if isinstance(one, int)), default=0)
            elif number:
                size += int(number) if len(number) < 12 else budget.size
        budget.fit(size)
    weight = budget.weigh(values)
    budget.fit(size + weight * (places if isinstance(values, Mapping) else 1))


def spec(budget: Budget, text: str) -> None:
    """Check a format specification: its width and its precision are the numbers in it."""
    for number in NUMBER.findall(text):
        budget.fit(int(number) if len(number) < 12 else budget.size + 1)
