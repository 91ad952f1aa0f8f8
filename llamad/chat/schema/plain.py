"""Grammars of plain text, not of JSON: one of several texts, or all that a regular expression matches.

Any thread; pure. The whole text must match, as in vLLM, whether or not the expression has anchors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from llamad.chat.schema import regex
from llamad.chat.schema.expressions import EMPTY, Chars, Expr, Literal, alt, render, rep, seq
from llamad.chat.schema.quoted import edges
from llamad.chat.schema.regex import Cat, Malformed, Or, Set, Times, Tree, Unsupported

__all__ = ["Malformed", "Unsupported", "of_regex", "of_texts"]

_SPECIAL = re.compile(r"[^ !#-\[\]-~]")  # what a literal of GBNF cannot have as it is


def of_texts(texts: Sequence[str]) -> str:
    """Exactly one of the texts. At C speed: there may be many."""
    shown = " | ".join([f'"{_SPECIAL.sub(_escape, text)}"' for text in dict.fromkeys(texts)])
    return f"root ::= {shown}\n"


def _escape(found: re.Match[str]) -> str:
    return render(Literal(found[0]))[1:-1]


def of_regex(pattern: str) -> str:
    """Raises Malformed, and Unsupported for what a grammar cannot say."""
    tree = regex.parse(pattern)
    if regex.loops_on_nothing(tree):
        raise Unsupported("it repeats something that may be empty")
    options = edges(tree)
    if options is None:
        raise Unsupported("^ and $ can only stand at its ends")
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
