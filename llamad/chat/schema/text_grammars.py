"""Grammars of plain text instead of JSON: one of several texts, or any text that a regular expression matches.

Any thread; pure. The whole text must match, as in vLLM, whether or not the expression has anchors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from llamad.chat.schema import regex
from llamad.chat.schema.expressions import EMPTY, Chars, Expr, Literal, alt, render, rep, seq
from llamad.chat.schema.quoted import edges
from llamad.chat.schema.regex import Cat, Malformed, Or, Set, Times, Tree, Unsupported

__all__ = ["Malformed", "Unsupported", "of_regex", "of_texts"]

PIECE_CHARS = 1 << 15  # escaped at once, which keeps the GIL for up to 2 ms
_SPECIAL = re.compile(r"[^ !#-\[\]-~]")  # characters that a GBNF literal must escape
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}  # the backslash must come first
_CONTROL_ESCAPES = {chr(code): f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in _ESCAPES}


def of_texts(texts: Iterable[str], chars_max: int) -> str | None:
    """Return the grammar of exactly one of the texts, or None if it would have more than `chars_max` characters. The
    texts may be long and come from clients, so they are escaped in C, and the work ends at the limit."""
    shown: list[str] = []
    n_chars = 0
    for text in dict.fromkeys(texts):
        literal = f'"{_escaped(text)}"'
        n_chars += len(literal) + len(" | ")
        if n_chars > chars_max:
            return None
        shown.append(literal)
    return f"root ::= {' | '.join(shown)}\n"


def _escaped(text: str) -> str:
    return "".join(_escaped_piece(text[i : i + PIECE_CHARS]) for i in range(0, len(text), PIECE_CHARS))


def _escaped_piece(text: str) -> str:
    if not _SPECIAL.search(text):
        return text
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    if _CONTROL.search(text):
        for char, escape in _CONTROL_ESCAPES.items():
            text = text.replace(char, escape)
    return text.encode("ascii", "backslashreplace").decode("ascii")


def of_regex(pattern: str) -> str:
    """Return the grammar of a regular expression. Raises Malformed, and Unsupported if a grammar cannot express it."""
    tree = regex.parse(pattern)
    if regex.loops_on_nothing(tree):
        raise Unsupported("it repeats something that may be empty")
    options = edges(tree)
    if options is None:
        raise Unsupported("^ and $ can only be at its ends")
    text = render(alt(_expr(core) for _, core, _ in options))
    return f"root ::= {text}\n" if text else 'root ::= ""\n'


def _expr(tree: Tree) -> Expr:
    match tree:
        case Set(ranges):
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                return Literal(chr(ranges[0][0]))
            return Chars(ranges)
        case Cat(parts):
            return seq(*map(_expr, parts)) if parts else EMPTY
        case Or(options):
            return alt(map(_expr, options))
        case Times(body, least, most):
            return rep(_expr(body), least, most)
    raise AssertionError("anchors are removed first")
