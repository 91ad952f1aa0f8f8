"""Our grammars against llama.cpp's: for generated grammars and texts, the same tokens are allowed at every step.

Three differences are meant. llama.cpp decodes a token's bytes loosely, here a text can only grow towards valid UTF-8:
tokens after which the text is not whole characters are left out. Behind characters it lets a token reference match
the rest of the same token, and breaks when that token is taken: not here. And no token is allowed that leads into a
dead end, such as before the empty class [z-a]: the grammars have none."""

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.grammars.oracle import Oracle, OracleDied
from support.live_daemon import model_path
from support.models.small_vocab import write_vocab

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
        self._whole: dict[bytes, np.ndarray] = {}

    def ours(self, matcher: Matcher) -> np.ndarray:
        bits = np.frombuffer(matcher.bits(), np.uint8)
        return np.unpackbits(bits, bitorder="little")[: self.words.n_vocab].astype(bool)

    def must_agree(self, text: bytes) -> np.ndarray:
        """Tokens after which the text is whole characters: that depends on its unfinished character alone."""
        n_whole = next(n for n in range(len(text), -1, -1) if is_utf8(text[:n]))
        begun = text[n_whole:]
        if begun not in self._whole:
            self._whole[begun] = np.array([is_utf8(begun + piece) for piece in self.texts])
        return self._whole[begun]

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


COUNTS = ("*", "+", "?", "{2}", "{1,}", "{0,0}", "{0,1}", "{0,3}", "{1,1}", "{1,3}", "{2,4}", "{3,6}")
KINDS = ("atom", "atom", "group", "repeat", "sequence")
N_DEEP = 3


class Picks:
    """Choices made by two bytes each of a string, which Hypothesis draws much faster than a choice each; the first one
    wherever no byte is left."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def one(self, options):
        picked = next(self._left, 0) << 8 | next(self._left, 0)
        return options[picked * len(options) >> 16]

    def several(self, make) -> list[str]:
        return [make() for _ in range(self.one((1, 2, 3)))]


def expression(picks: Picks, rule: int, depth: int = 0) -> str:
    """What may stand in the rule: later rules as they are, the others mostly in brackets, lest all is recursion."""
    kind = picks.one(KINDS) if depth < N_DEEP else "atom"
    if kind == "atom":
        called = [*NAMES[rule + 1 :], *(f'"(" {name} ")"' for name in NAMES), *NAMES[:1]]
        literals = [f'"{text}"' for text in LITERALS]
        return picks.one(picks.one((literals, literals, CLASSES, called, TOKENS)))
    inner = picks.several(lambda: expression(picks, rule, depth + 1))
    if kind == "sequence":
        return " ".join(inner)
    return f"({' | '.join(inner)})" + (picks.one(COUNTS) if kind == "repeat" else "")


def grammar_of(picks: Picks) -> str:
    bodies = [picks.several(lambda rule=rule: expression(picks, rule)) for rule in range(len(NAMES))]
    return "\n".join(f"{name} ::= {' | '.join(body)}" for name, body in zip(NAMES, bodies, strict=True))


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
            judged = judged & (both.is_short | ours)
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


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(
    grammar=st.binary(min_size=150, max_size=400).map(lambda data: grammar_of(Picks(data))),
    text=st.binary(min_size=2 * N_STEPS),
)
def test_the_same_tokens_are_allowed_at_every_step(small, grammar, text):
    try:
        n = compare(small, grammar, Picks(text).one)
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
