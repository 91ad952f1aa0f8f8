"""Text that a grammar forces: it is found exactly as far as there is no choice, and spelled with the longest tokens."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models.small_vocab import write_vocab

from bench.micro.llama_grammar import Words
from llamad.grammar.grammar import Grammar, GrammarError, GrammarLater, GrammarTooMuch, Matcher, Pieces

FIRST_BYTE = 3  # the token of the byte 0
BYTES_MAX = 256
LITERALS = ["name", '"a": ', "é", "日本", "x", "", "ab", "abc"]
ATOMS = st.one_of(
    st.sampled_from(LITERALS).map(lambda text: '"' + text.replace('"', '\\"') + '"'),
    st.sampled_from(["[a-c]", "[^x]", "[é]", "x", "y"]),
)
BODIES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(" ".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda some: f"({' | '.join(some)})"),
        st.tuples(inner, st.sampled_from(["?", "*", "{2}"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=8,
)
GRAMMARS = st.tuples(BODIES, BODIES, BODIES).map(
    lambda three: "root ::= {}\nx ::= {}\ny ::= {}".format(*three)
)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return Words(write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.gguf"))


@pytest.fixture(scope="module")
def pieces(words):
    return Pieces(words.vocab)


def spelled(words, tokens):
    return b"".join(words.vocab.piece(token, True) for token in tokens)


def byte_choices(grammar, text):
    """The bytes that may follow a text; None if the text may end there."""
    if grammar.accepts(text):
        return None
    return [byte for byte in range(256) if grammar.accepts_prefix(text + bytes([byte]))]


@settings(max_examples=80, deadline=None)
@given(grammar=GRAMMARS, steps=st.lists(st.integers(0, 1 << 20), max_size=6))
def test_it_is_what_the_grammar_leaves_no_choice_about(words, pieces, grammar, steps):
    try:
        compiled = Grammar(grammar, pieces)
    except GrammarError:
        return
    matcher, text = Matcher(compiled), b""
    try:
        for step in [0, *steps]:
            tokens = matcher.forced()
            forced = spelled(words, tokens)
            for n in range(len(forced)):
                assert byte_choices(compiled, text + forced[:n]) == [forced[n]]
            rest = byte_choices(compiled, text + forced)
            assert rest is None or len(rest) != 1 or len(forced) == BYTES_MAX
            texts = [
                token
                for token in range(words.n_vocab)
                if matcher.allows(token) and not words.vocab.is_eog(token)
            ]
            if tokens:
                longest = max(
                    len(spelled(words, [one])) for one in texts if forced.startswith(spelled(words, [one]))
                )
                assert len(spelled(words, tokens[:1])) == longest
            if not texts:
                return
            token = texts[step % len(texts)]
            assert matcher.accept(token)
            text += spelled(words, [token])
    except GrammarTooMuch:
        return


def test_tokens_are_the_longest_and_all_are_accepted(words, pieces):
    grammar = Grammar('root ::= "the temperature of the room: " [0-9]+', pieces)
    matcher = Matcher(grammar)
    tokens = matcher.forced()
    assert spelled(words, tokens) == b"the temperature of the room: "
    assert matcher.forced(2) == tokens[:2]
    assert matcher.forced(0) == []
    for i, token in enumerate(tokens):
        assert matcher.forced() == tokens[i:]
        assert matcher.accept(token)
    assert matcher.forced() == []


def test_it_costs_no_work_of_the_matcher(pieces):
    """A text of a grammar has the same fate whether forced text was looked for or not."""
    grammar = Grammar('root ::= "abcdefgh" [a-z]*', pieces)
    matcher = Matcher(grammar)
    matcher.set_allowance(0)
    assert matcher.forced() != []
    matcher = Matcher(Grammar('root ::= "abcdefgh" [a-z]*', pieces))
    matcher.set_allowance(0)
    with pytest.raises(GrammarLater):
        matcher.allows(FIRST_BYTE + ord("a"))
    matcher.cancel()
    assert matcher.forced() == []


def test_a_hard_grammar_takes_no_longer(pieces):
    """Thousands of rules that begin with the same byte."""
    rules = " | ".join(f'r{i} "{i}"' for i in range(2000))
    lines = "\n".join(f'r{i} ::= "a" "b"{{1,{1 + i % 50}}}' for i in range(2000))
    matcher = Matcher(Grammar(f"root ::= {rules}\n{lines}", pieces))
    t_begin = time.thread_time()
    for _ in range(20):
        matcher.forced()
    assert time.thread_time() - t_begin < 0.5
