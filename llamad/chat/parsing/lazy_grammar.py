"""Lazy grammars: the text is free until a trigger occurs; from the trigger on, a grammar constrains it.

Any thread, no state; the work is bounded like that of patterns. Free text cannot complete a trigger. Only the text of
the grammar can, because it begins with the trigger, or with a group in it.
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

# Lexical elements of GBNF: strings, classes, comments and tokens, which contain no names; and names, in a group.
_LEXEMES = re.compile(
    r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|<[^<>\n]*>|([A-Za-z0-9_-]+)', re.DOTALL
)

_BLANK = Chars(normal((ord(c), ord(c)) for c in " \t\r\n"))


class Lazy(msgspec.Struct, frozen=True):
    """The triggers of a grammar: words and patterns, anywhere in the text unless a pattern has anchors. There are none
    inside reasoning, which the prompt may have opened."""

    words: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    thought: tuple[str, str] | None = None  # the tags around reasoning
    is_open: bool = False  # the prompt has opened reasoning


class LazyGrammar(msgspec.Struct):
    """The arguments of lazy_grammar()."""

    text: str
    lazy: Lazy


class TriggerError(ValueError):
    """A trigger cannot be honoured."""


def lazy_grammar(text: str, lazy: Lazy) -> str:
    """Return GBNF for free text that may continue with text of the valid grammar `text`. Raises TriggerError."""
    free = _free(lazy)
    if not free.accepts[0]:  # a trigger matches the empty text
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
    """Return an automaton that accepts the texts in which no trigger has occurred yet."""
    report = Report(strict=True)
    try:
        trees = [_literal(word) for word in lazy.words] + [_parsed(one) for one in lazy.patterns]
        automata = [(of_pattern(tree, report.spend), False) for tree in trees]
        return together(automata, report.spend)
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
    """Make a rule for each state in which no trigger has occurred, and return the first. Each may continue with the
    grammar."""
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
    """Return a new name for the grammar's root, and the grammar with that name."""
    name = next(name for four in product(ascii_lowercase, repeat=4) if (name := "".join(four)) not in text)
    if "root" not in (match[1] for match in _LEXEMES.finditer(text)):
        raise TriggerError("the grammar has no rule named root")
    return name, _LEXEMES.sub(lambda match: name if match[1] == "root" else match[0], text)
