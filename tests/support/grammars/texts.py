"""Texts that look like grammars, and what must hold for each of them. Used by the fuzz target and the tests."""

from __future__ import annotations

from hypothesis import strategies as st

from llamad.grammar.grammar import Grammar, GrammarError, GrammarTooMuch

FRAGMENTS = [
    *(
        "root",
        "x",
        "y-1",
        " ::= ",
        "\n",
        " | ",
        '"a"',
        '"é"',
        '""',
        "[a-z]",
        "[^a-z]",
        "[]",
        "[^]",
        "[z-a]",
        ".",
    ),
    *(
        "(",
        ")",
        "*",
        "+",
        "?",
        "{",
        "}",
        "{2}",
        "{0,3}",
        "{3,0}",
        "{,2}",
        "{99999999999}",
        ",",
        "0",
        "7",
        "#",
        "# c\n",
    ),
    *(
        "<",
        ">",
        "<[1]>",
        "!",
        "!<[2]>",
        "<x>",
        "\\",
        "\\x4",
        "\\u00e9",
        "\\U0010FFFF",
        "\\ud800",
        "-",
        "^",
        "\t",
        "\r\n",
    ),
    *("\0", "\x7f", "日", "😀", "\ud7ff", "::=", ":", "="),
]
texts = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join),
    st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(lambda some: "root ::= " + "".join(some)),
    st.text(max_size=60).map(lambda text: "root ::= " + text),
)

words = st.binary(max_size=40) | st.text("aébz(){}", max_size=30).map(str.encode)


def judge(grammar: str, text: bytes) -> None:
    """Compiles or is refused with a reason; then answers for any text."""
    refusal = None
    try:
        compiled = Grammar(grammar)
    except GrammarError as error:
        refusal = error
    if refusal is not None:
        assert refusal.reason, "a refusal has a reason"
        assert refusal.line <= grammar.count("\n") + 1
        return
    try:
        if compiled.accepts(text):
            assert compiled.accepts_prefix(text)
            assert all(compiled.accepts_prefix(text[:n]) for n in range(len(text)))
    except GrammarTooMuch:
        return
    assert compiled.n_bytes < 128 << 20
