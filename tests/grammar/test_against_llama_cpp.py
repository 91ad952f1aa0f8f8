"""Our grammars against llama.cpp's: for generated grammars and texts, the same tokens are allowed at every step.

Three differences are meant. llama.cpp decodes a token's bytes loosely, here a text can only grow towards valid UTF-8:
tokens after which the text is not whole characters are left out. Behind characters it lets a token reference match
the rest of the same token, and breaks when that token is taken: not here. And no token is allowed that leads into a
dead end, such as before the empty class [z-a]: the grammars have none."""

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.grammar_oracle import Oracle, OracleDied
from support.live_daemon import model_path
from support.small_vocab import write_vocab

from bench.micro.llama_grammar import Words
from llamad.grammar.grammar import Grammar, GrammarError, Matcher, Pieces

N_STEPS = 10


class Both:
    """One vocabulary, known to llama.cpp's sampler and to ours."""

    def __init__(self, path: str) -> None:
        self.words = Words(path)
        self.pieces = Pieces(self.words.vocab)
        self.oracle = Oracle(path)
        self.texts = [self.words.piece(token) for token in range(self.words.n_vocab)]
        self.is_short = np.array([len(text) < 2 for text in self.texts])

    def ours(self, matcher: Matcher) -> np.ndarray:
        bits = np.frombuffer(matcher.bits(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self.words.n_vocab].astype(bool)

    def must_agree(self, text: bytes) -> np.ndarray:
        """Tokens after which the text is whole characters."""
        return np.array([is_utf8(text + piece) for piece in self.texts])

    def close(self) -> None:
        self.oracle.close()
        del self.pieces
        self.words.close()


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    both = Both(write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.gguf"))
    yield both
    both.close()


@pytest.fixture(scope="module")
def real():
    both = Both(model_path())
    yield both
    both.close()


NAMES = ("root", "item", "tail", "x-1")
LITERALS = (
    "a",
    "b",
    "ab",
    "aa",
    " ",
    "{",
    "}",
    '\\"',
    "\\\\",
    "\\n",
    "é",
    "日",
    "😀",
    "\\x41",
    "\\u20AC",
    "1",
    "",
)
CLASSES = (
    "[a-d]",
    "[^a-d]",
    "[0-9]",
    '[^"\\\\]',
    "[a日é]",
    "[\\x00-\\U0010FFFF]",
    "[a-]",
    "[^\\n]",
    "[\\]x]",
    ".",
)
TOKENS = ("<think>", "</think>", "!<think>", "<[300]>", "!<[262]>")


def expressions(rule: int) -> st.SearchStrategy[str]:
    """What may stand in the rule: later rules as they are, the others mostly in brackets, lest all is recursion."""
    called = st.sampled_from([*NAMES[rule + 1 :], *(f'"(" {name} ")"' for name in NAMES), *NAMES[:1]])
    literal = st.sampled_from(LITERALS).map(lambda text: f'"{text}"')
    atom = st.one_of(literal, st.sampled_from(CLASSES), called, literal, st.sampled_from(TOKENS))
    count = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda two: (min(two), sum(two)))
    repeat = st.one_of(
        st.sampled_from(("*", "+", "?", "{2}", "{1,}")), count.map(lambda two: f"{{{two[0]},{two[1]}}}")
    )

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        group = st.lists(inner, min_size=1, max_size=3).map(lambda all: f"({' | '.join(all)})")
        return st.one_of(
            group,
            st.tuples(group, repeat).map("".join),
            st.lists(inner, min_size=1, max_size=3).map(" ".join),
        )

    return st.recursive(atom, larger, max_leaves=6)


def grammars() -> st.SearchStrategy[str]:
    bodies = st.tuples(*[st.lists(expressions(rule), min_size=1, max_size=3) for rule in range(len(NAMES))])
    return bodies.map(
        lambda all: "\n".join(f"{name} ::= {' | '.join(body)}" for name, body in zip(NAMES, all, strict=True))
    )


def compare(both: Both, grammar: str, choose) -> int:
    """Walks both through one text; the number of steps compared."""
    try:
        compiled = Grammar(grammar, both.pieces)
    except GrammarError as error:
        reason = error.reason
    else:
        reason = ""
    if reason:
        # It lets recursion pass that hides behind rules that may be empty, and then never ends.
        assert "left recursion" in reason or not both.oracle.begin(grammar), f"{grammar}\n{reason}"
        event("refused here")
        return 0
    if not both.oracle.begin(grammar):
        event("refused by llama.cpp: it takes a repetition of what may be empty for left recursion")
        return 0
    matcher = Matcher(compiled)
    text = b""
    for step in range(N_STEPS):
        theirs, ours = both.oracle.mask(), both.ours(matcher)
        judged = both.must_agree(text)
        if "<" in grammar:
            judged &= both.is_short | ours
        wrong = np.flatnonzero((theirs != ours) & judged)
        assert not len(wrong), (
            f"{grammar}\nafter {text!r}: {[(both.texts[t], bool(ours[t])) for t in wrong[:10]]}"
        )
        allows = np.array([matcher.allows(int(token)) for token in range(0, both.words.n_vocab, 7)])
        assert (allows == ours[::7]).all(), f"{grammar}\nafter {text!r}: one by one"
        allowed = np.flatnonzero(theirs & ours & judged)
        open_ = [int(token) for token in allowed if not both.words.vocab.is_eog(int(token))]
        if not open_:
            return step + 1
        token = choose(open_)
        assert matcher.accept(token)
        both.oracle.accept(token)
        text += both.texts[token]
    return N_STEPS


@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
@given(grammar=grammars(), data=st.data())
def test_the_same_tokens_are_allowed_at_every_step(small, grammar, data):
    try:
        n = compare(small, grammar, lambda tokens: data.draw(st.sampled_from(tokens)))
    except OracleDied:
        event("llama.cpp died of it")
        return
    event(f"{min(n, 3)}{'+' if n >= 3 else ''} steps")


JSON = """
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\\"" ([^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws ::= | " " | "\\n" [ \\t]{0,20}
"""


def test_a_json_grammar_on_a_real_vocabulary(real):
    text = '{"name": "Zoë 日本", "list": [1, -2.5e7, {"deep": [[]]}], "flag": true}'
    tokens = list(memoryview(real.words.vocab.tokenize(text.encode(), False, False)).cast("i"))
    at = iter(tokens)

    def choose(open_):
        token = next(at)
        assert token in open_
        return token

    compiled = Matcher(Grammar(JSON, real.pieces))
    assert real.oracle.begin(JSON)
    written = b""
    for token in tokens:
        theirs, ours = real.oracle.mask(), real.ours(compiled)
        judged = real.must_agree(written)
        assert (theirs[judged] == ours[judged]).all(), written
        assert compiled.accept(token)
        real.oracle.accept(token)
        written += real.texts[token]
    assert compiled.may_end
    assert written.decode() == text
