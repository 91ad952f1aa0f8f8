"""Lazy grammars: the text is free until a trigger comes, and from the trigger on a grammar holds it.

Any thread, no state; the work is bounded as that of patterns is. Free text cannot complete a trigger, only the text of
the grammar can: it begins with the trigger, or with a group in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from string import ascii_lowercase

import msgspec

from llamad.chat.parsing.syntax.free_text import Mark, free_text
from llamad.chat.schema import regex
from llamad.chat.schema.automaton import Automaton, Moves, TooLarge, of_pattern, together
from llamad.chat.schema.errors import Report, SchemaError
from llamad.chat.schema.expressions import (
    EMPTY,
    Chars,
    Expr,
    Literal,
    Reference,
    alt,
    normal,
    render,
    rep,
    seq,
)
from llamad.chat.schema.regex import Cat, Malformed, Set, Tree, Unsupported

# Strings, classes, comments and tokens of GBNF, in which no name stands; names.
_PARTS = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|<[^<>\n]*>|([A-Za-z0-9_-]+)', re.DOTALL)

_BLANK = Chars(normal((ord(c), ord(c)) for c in " \t\r\n"))


class Lazy(msgspec.Struct, frozen=True):
    """What a grammar waits for: words and patterns, anywhere in the text unless a pattern has anchors. Reasoning, which
    the prompt may have opened, is free of them."""

    words: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    thought: tuple[str, str] | None = None  # the tags around it
    is_open: bool = False


class LazyGrammar(msgspec.Struct):
    """The arguments of lazy_grammar()."""

    text: str
    lazy: Lazy


class TriggerError(ValueError):
    """A trigger that cannot be honoured."""


def lazy_grammar(text: str, lazy: Lazy) -> str:
    """GBNF for free text that may go on with that of `text`, a valid grammar. Raises TriggerError."""
    free = _free(lazy)
    if not free.accepts[0]:  # nothing is free
        return text
    own, text = _renamed(text)
    rules: dict[str, str] = {}

    def rule(name: str, body: Expr) -> Reference:
        rules[name] = render(body)
        return Reference(name)

    prefix = "free"
    while prefix in text:
        prefix += "-"
    begun = _rules(free, prefix, Reference(own), rule)
    root: Expr = begun
    if lazy.thought is not None:
        opens, closes = lazy.thought
        thinking = free_text(f"{prefix}-thinking", [Mark((closes,), then=begun)], rule)
        opened = seq(rep(_BLANK, 0, None), Literal(opens), thinking)
        root = thinking if lazy.is_open else alt([begun, opened])
    rule("root", root)
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items()) + text


def _free(lazy: Lazy) -> Automaton:
    """Accepts the texts in which no trigger has come yet."""
    report = Report(strict=True)
    try:
        trees = [_literal(word) for word in lazy.words] + [_parsed(one) for one in lazy.patterns]
        found = [(of_pattern(tree, report.spend), False) for tree in trees]
        return together(found, report.spend)
    except (TooLarge, SchemaError):
        raise TriggerError("the triggers are too complex for a grammar; simplify them") from None


def _literal(word: str) -> Tree:
    return Cat(tuple(Set(((ord(c), ord(c)),)) for c in word))


def _parsed(pattern: str) -> Tree:
    try:
        return regex.parse(pattern)
    except Malformed as error:
        raise TriggerError(f"{pattern[:64]!r} is not a regular expression: {error}") from None
    except Unsupported as error:
        raise TriggerError(f"{pattern[:64]!r} cannot be honoured: {error}") from None


def _rules(free: Automaton, prefix: str, own: Expr, rule: Callable[[str, Expr], Reference]) -> Reference:
    """A rule for each state in which no trigger has come; each may go on with the grammar."""
    for state, moves in enumerate(free.moves):
        if free.accepts[state]:
            rule(f"{prefix}-{state}", alt([EMPTY, own, *_exits(free, moves, prefix)]))
    return Reference(f"{prefix}-0")


def _exits(free: Automaton, moves: Moves, prefix: str) -> list[Expr]:
    ways: dict[int, list[tuple[int, int]]] = {}
    for low, high, to in moves:
        if free.accepts[to]:
            ways.setdefault(to, []).append((low, high))
    return [seq(Chars(normal(ranges)), Reference(f"{prefix}-{to}")) for to, ranges in ways.items()]


def _renamed(text: str) -> tuple[str, str]:
    """Another name of the grammar's root, and the grammar with it."""
    name = next(name for found in product(ascii_lowercase, repeat=4) if (name := "".join(found)) not in text)
    if "root" not in (found[1] for found in _PARTS.finditer(text)):
        raise TriggerError("the grammar has no rule named root")
    return name, _PARTS.sub(lambda found: name if found[1] == "root" else found[0], text)
