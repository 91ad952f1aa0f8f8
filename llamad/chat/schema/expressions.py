"""GBNF expressions as values. The lower-case functions build and simplify them; `render` prints them.

Any thread; immutable. Knows neither JSON nor schemas. Expressions must stay shallow (see NESTING): long chains are
split into rules, so that neither the recursion here nor that of the engine gets deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

NESTING = 8  # after this many levels a chain continues in a rule of its own
MOST_REPEATS = 100_000

Ranges = tuple[tuple[int, int], ...]  # inclusive ranges of code points, sorted, not adjacent


class Literal(msgspec.Struct, frozen=True):
    text: str


class Chars(msgspec.Struct, frozen=True):
    ranges: Ranges


class Sequence(msgspec.Struct, frozen=True):
    parts: tuple[Expr, ...]


class Choice(msgspec.Struct, frozen=True):
    options: tuple[Expr, ...]


class Repeat(msgspec.Struct, frozen=True):
    body: Expr
    least: int
    most: int | None


class Reference(msgspec.Struct, frozen=True):
    name: str


Expr = Literal | Chars | Sequence | Choice | Repeat | Reference

EMPTY = Sequence(())
NEVER = Choice(())  # matches nothing at all


def seq(*parts: Expr) -> Expr:
    flat: list[Expr] = []
    for part in parts:
        if part == NEVER:
            return NEVER
        for piece in part.parts if isinstance(part, Sequence) else (part,):
            last = flat[-1] if flat else None
            if isinstance(piece, Literal) and isinstance(last, Literal):
                flat[-1] = Literal(last.text + piece.text)
            elif piece != Literal(""):
                flat.append(piece)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def alt(options: Iterable[Expr]) -> Expr:
    flat: dict[Expr, None] = {}
    chars: list[tuple[int, int]] = []
    for option in options:
        for piece in option.options if isinstance(option, Choice) else (option,):
            if isinstance(piece, Chars):
                chars.extend(piece.ranges)
            else:
                flat[piece] = None
    pieces: list[Expr] = [Chars(normal(chars))] if chars else []
    pieces += [piece for piece in flat if piece != EMPTY]
    choice = pieces[0] if len(pieces) == 1 else Choice(tuple(pieces))
    return opt(choice) if EMPTY in flat else choice


def rep(body: Expr, least: int, most: int | None) -> Expr:
    if most is not None and most < least:
        return NEVER
    if most == 0 or body == EMPTY:
        return EMPTY
    if body == NEVER:
        return EMPTY if least == 0 else NEVER
    if (least, most) == (1, 1):
        return body
    if least == 0 and isinstance(body, Repeat) and body.least <= 1 and (body.most is None or most == 1):
        return Repeat(body.body, 0, body.most)
    return Repeat(body, least, most)


def opt(body: Expr) -> Expr:
    return rep(body, 0, 1)


def normal(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges sorted, with adjacent ones joined."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def parts_of(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Sequence(parts):
            return parts
        case Choice(options):
            return options
        case Repeat(body):
            return (body,)
    return ()


def references(expr: Expr) -> Iterator[str]:
    stack = [expr]
    while stack:
        part = stack.pop()
        if isinstance(part, Reference):
            yield part.name
        else:
            stack.extend(reversed(parts_of(part)))


def weight(expr: Expr) -> int:
    """Return the approximate length of the expression as text."""
    total = 0
    stack = [expr]
    while stack:
        part = stack.pop()
        match part:
            case Literal(text):
                total += len(text) + 3
            case Chars(ranges):
                total += 8 * len(ranges) + 3
            case Reference(name):
                total += len(name) + 1
            case _:
                total += 4
                stack.extend(parts_of(part))
    return total


def render(expr: Expr) -> str:
    match expr:
        case Literal(text):
            return '"' + "".join(map(_in_literal, text)) + '"'
        case Chars(ranges):
            return "[" + "".join(map(_in_class, ranges)) + "]"
        case Reference(name):
            return name
        case Sequence(parts):
            return " ".join(f"({render(p)})" if isinstance(p, Choice) else render(p) for p in parts)
        case Choice(options):
            return " | ".join(map(render, options))
        case Repeat(body, least, most):
            return _atom(body) + _count(least, most)


def _atom(body: Expr) -> str:
    bare = isinstance(body, Chars | Reference) or (isinstance(body, Literal) and len(body.text) == 1)
    return render(body) if bare else f"({render(body)})"


def _count(least: int, most: int | None) -> str:
    if most is None:
        return "*" if least == 0 else "+" if least == 1 else f"{{{least},}}"
    if (least, most) == (0, 1):
        return "?"
    return f"{{{least}}}" if least == most else f"{{{least},{most}}}"


def _in_literal(c: str) -> str:
    plain = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return plain.get(c) or (c if " " <= c <= "~" else _code(ord(c)))


def _in_class(bounds: tuple[int, int]) -> str:
    low, high = map(_class_char, bounds)
    return low if low == high else low + ("" if bounds[1] == bounds[0] + 1 else "-") + high


def _class_char(code: int) -> str:
    c = chr(code)
    return c if " " <= c <= "~" and c not in '"\\[]-^' else _code(code)


def _code(code: int) -> str:
    return f"\\x{code:02X}" if code < 0x80 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
