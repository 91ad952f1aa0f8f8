"""Grammars that begin at a trigger: what is free before it, what is held behind it."""

from __future__ import annotations

import pytest

from llamad.chat.parsing.lazy_grammar import Lazy, TriggerError, lazy_grammar
from llamad.grammar.grammar import Grammar

# The name of a rule also in a literal, a class, a comment and a token.
GRAMMAR = 'root ::= "<call>" body  # root\nbody ::= "root" | [root] | "(" root ")" | <[3]> <root>\n'
CALL = "<call>root"


def accepts(lazy: Lazy, text: str, grammar: str = GRAMMAR) -> bool:
    accepted: bool = Grammar(lazy_grammar(grammar.replace(" | <[3]> <root>", ""), lazy)).accepts(
        text.encode()
    )
    return accepted


@pytest.mark.parametrize(
    "lazy",
    [
        Lazy(words=("<call>",)),
        Lazy(words=("never", "<call>")),
        Lazy(patterns=("<call>",)),
        Lazy(patterns=("^[^]*?(<ca[l]{2}>)[^]*$",)),
        Lazy(patterns=(r"(<call>)\s*",)),
    ],
)
def test_free_up_to_the_trigger(lazy: Lazy) -> None:
    for text in ("", "free\n", "<", "<call", "<cal>", CALL, "free <" + CALL, "free <call>(<call>o)"):
        assert accepts(lazy, text), text
    for text in ("<call>", "free <call>", "free <call>x", CALL + " more", "free <call>x" + CALL):
        assert not accepts(lazy, text), text


def test_a_group_behind_a_context() -> None:
    """The trigger is more than what the grammar begins with."""
    lazy = Lazy(patterns=(r"</think>\s*(\{)",))
    grammar = 'root ::= "{" [0-9] "}"'
    for text in ("{x", "</think> x", "</think>\n{1}", "{x</think>{1}"):
        assert accepts(lazy, text, grammar), text
    for text in ("</think>\n{x", "</think>{", "{</think>{1}x"):
        assert not accepts(lazy, text, grammar), text


def test_all_of_the_text() -> None:
    lazy = Lazy(patterns=("^a+(b)$",))
    grammar = 'root ::= "b" "!"'
    for text in ("ab!", "cab", "caab?", "aac"):
        assert accepts(lazy, text, grammar), text
    assert not accepts(lazy, "aab", grammar)
    assert not accepts(lazy, "aab?", grammar)
    assert lazy_grammar(grammar, Lazy(patterns=("^[^]*$",))) == grammar  # from the first character on


def test_no_trigger_in_a_thought() -> None:
    lazy = Lazy(words=("<call>",), thought=("<think>", "</think>"))
    for text in (CALL, "<think>a<call>b", "\n<think><call></think>free " + CALL, "free<think>"):
        assert accepts(lazy, text), text
    for text in ("<think></think><call>", "free<think><call></think>", "<call>"):
        assert not accepts(lazy, text), text
    opened = Lazy(words=("<call>",), thought=("<think>", "</think>"), is_open=True)
    for text in ("<call>", "a<call>b</think>" + CALL):
        assert accepts(opened, text), text
    assert not accepts(opened, "</think><call>")


def test_names() -> None:
    _, text = lazy_grammar(GRAMMAR, Lazy(words=("<call>",))).split("root ::= free-0\n")
    own = text[:4]
    assert own != "root"
    assert text.startswith(f'{own} ::= "<call>" body  # root\nbody ::= "root" | [root] | "(" {own} ")"')
    assert "<[3]> <root>" in text
    assert accepts(Lazy(words=("a",)), "xab", 'root ::= free-0 "b"\nfree-0 ::= "a"')
    assert accepts(Lazy(words=("a",)), "x", "root ::=")


@pytest.mark.parametrize(
    ("lazy", "says"),
    [
        (Lazy(patterns=("(?=x)",)), "look-around"),
        (Lazy(patterns=("(",)), "not a regular expression"),
        (Lazy(patterns=("(a|b)*a(a|b){20}c",)), "too complex"),
    ],
)
def test_refused(lazy: Lazy, says: str) -> None:
    with pytest.raises(TriggerError, match=says):
        lazy_grammar(GRAMMAR, lazy)
    with pytest.raises(TriggerError, match="no rule named root"):
        lazy_grammar('other ::= "root"', Lazy(words=("x",)))
