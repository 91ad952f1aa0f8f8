"""GBNF as users write it: what is accepted, what is refused and where, and that nothing makes it hang."""

import threading
import time

import numpy as np
import pytest
from support.models.small_vocab import write_vocab

from bench.micro.llama_grammar import Words
from llamad.grammar.grammar import Grammar, GrammarError, GrammarTooMuch, Matcher, Pieces


def texts(grammar, *candidates):
    compiled = Grammar(grammar)
    return [text for text in candidates if compiled.accepts(text.encode())]


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ('root ::= "a" | "b"', ["a", "b"], ["", "c", "ab"]),
        ('root ::= "a"?', ["", "a"], ["aa"]),
        ('root ::= "ab"*', ["", "ab", "abab"], ["a", "aba"]),
        ('root ::= "ab"+', ["ab", "abab"], ["", "a"]),
        ("root ::= [a-c]{2}", ["ab", "cc"], ["a", "abc", "ad"]),
        ("root ::= [a-c]{2,}", ["ab", "abca"], ["a"]),
        ("root ::= [a-c]{0,2}", ["", "a", "ab"], ["abc"]),
        ("root ::= [^a-c]", ["d", "é", "\n", "😀"], ["a", "", "dd"]),
        ("root ::= .{2}", ["a\n", "日本"], ["a", "日本語"]),
        ('root ::= "é" [α-ω]', ["éλ"], ["eλ", "éΛ"]),
        ('root ::= "\\x41\\u00e9\\U0001F600"', ["Aé😀"], ["A"]),
        ("root ::= [a\\-z] [\\]\\[] [x-]", ["-]x", "a[-"], ["b]x", "a]y"]),
        ('root ::= ("(" root ")")*', ["", "()", "(())()"], ["(", "())"]),
        ('root ::= x "c"\nx ::= "a" x | "b"', ["bc", "aabc"], ["ac", "aab"]),
        ('# a comment\nroot ::= # another\n  "a" # and one\n\n# the end', ["a"], ["b"]),
        ('root ::= (\n  "a" |\n  "b"\n)', ["a", "b"], ["ab"]),
        ('root ::= "a"\nroot ::= "b"', ["b"], ["a"]),
        ('root ::= [] "a"', ["a"], [""]),
        ('root ::= "a" [z-a] | "b"', ["b"], ["a", "am", "az"]),
        ('root ::= "a"{0}', [""], ["a"]),
        ('root ::= ("a" | "ab") ("c" | "bc")', ["ac", "abc", "abbc"], ["a", "ab"]),
        ('root ::= e "x" e\ne ::= f\nf ::= "a"?', ["x", "ax", "xa", "axa"], ["", "aa"]),
        ("root ::= [\\ud800-\\udfff] | [\\ud7ff-\\ue000]", ["\ud7ff", "\ue000"], ["a"]),
        ('root ::= a-b1\na-b1 ::= "\\t\\r\\n\\\\\\""', ['\t\r\n\\"'], ["a"]),
    ],
)
def test_what_a_grammar_accepts(grammar, good, bad):
    assert texts(grammar, *good, *bad) == good


@pytest.mark.parametrize(
    ("grammar", "line", "column", "reason"),
    [
        ("", 1, 1, "no rule named root"),
        ('rot ::= "a"', 1, 1, "no rule named root"),
        ('root ::= "a"\nb := "c"', 2, 3, "expected ::="),
        ("root ::= b", 1, 10, "no rule named b"),
        ('root ::= "a"\n  | "b"', 2, 3, "expected the name of a rule"),
        ('root ::= "a', 1, 12, "ends inside"),
        ("root ::= [a", 1, 12, "ends inside"),
        ('root ::= ("a"', 1, 14, "expected )"),
        ('root ::= "a")', 1, 13, "end of the rule"),
        ('root ::= "é" "\\q"', 1, 15, "unknown escape"),
        ('root ::= "\\u12"', 1, 15, "4 hexadecimal digits"),
        ("root ::= *", 1, 10, "nothing before this"),
        ('root ::= "" *', 1, 13, "nothing before this"),
        ('root ::= "a"{', 1, 14, "expected a number"),
        ('root ::= "a"{2', 1, 15, "expected }"),
        ('root ::= "a"{5,2}', 1, 14, "minimum is above"),
        ('root ::= "a"{100001}', 1, 14, "may count to"),
        ('root ::= "a"{0,99999999999999999999999}', 1, 14, "may count to"),
        ('root ::= root "a" | "b"', 1, 1, "left recursion: rule root"),
        ('root ::= x\nx ::= y "a"\ny ::= x | "b"', 3, 1, "left recursion: rule y"),
        ('root ::= e root "a" | "b"\ne ::= f\nf ::= "x"?', 1, 1, "left recursion: rule root"),
        ('root ::= ("a"? root)*', 1, 1, "left recursion: rule root"),
        ("root ::= [z-a]", 1, 1, "no text can match"),
        ('root ::= "a" x "b"\nx ::= "c" [z-a]', 1, 1, "no text can match"),
        ("root ::= <[5]>", 1, 10, "no such token"),
        ("root ::= <think>", 1, 10, "not exactly one token"),
        ("root ::= !x", 1, 11, "expected < and a token"),
        ("root ::= <think", 1, 10, "closing >"),
        ('root ::= "a" % "b"', 1, 14, "end of the rule"),
        ('root ::= "a\0b"', 1, 12, "NUL"),
        ("root ::= " + "(" * 20000, 1, 266, "nest deeper than 256"),
        ('root ::= "a"' + "*" * 20, 1, 29, "too many repetitions"),
    ],
)
def test_a_bad_grammar_says_where_and_why(grammar, line, column, reason):
    with pytest.raises(GrammarError) as caught:
        Grammar(grammar)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert reason in caught.value.reason


def test_what_kills_or_stops_llama_cpp_is_served():
    chain = "\n".join(f'r{i} ::= r{i + 1} | r{i + 1} "b"' for i in range(40)) + '\nr40 ::= "x"'
    doubled = Grammar("root ::= r0\n" + chain)
    assert doubled.accepts(b"x" + b"b" * 40)
    assert not doubled.accepts(b"x" + b"b" * 41)
    long_chain = "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}" for i in range(60000)) + '\nr60000 ::= "x"'
    assert Grammar(long_chain).accepts(b"x")
    many = Grammar("root ::= [ab]{0,3000}")
    assert many.accepts(b"a" * 3000)
    assert not many.accepts(b"a" * 3001)


def test_many_rules_are_refused():
    with pytest.raises(GrammarError, match="more than 65536 rules"):
        Grammar("root ::= r0\n" + "\n".join(f'r{i} ::= "x"' for i in range(70000)))


def test_nested_repetitions_stay_small():
    nested = Grammar("root ::= (([a-z]{1,500} ' '?){0,500}){0,500}".replace("' '", '" "'))
    assert nested.accepts(b"abc def " * 50)
    assert nested.n_bytes < 8_000_000


def test_copies_of_what_is_large_are_calls_however_repetitions_nest():
    large = "|".join(f'"{i:06d}"' for i in range(100))
    for repeated in ("*){0,100000}", "{2}" * 14 + ")", "?){5,}"):
        grammar = Grammar(f"root ::= (({large}){repeated}")
        assert grammar.n_bytes < 10_000_000
        assert grammar.accepts_prefix(b"000000000099")
        assert not grammar.accepts_prefix(b"000000000100")


@pytest.mark.parametrize(
    "grammar",
    [
        # Each rule's node holds all that waits for the first one.
        "root ::= " + "|".join('a0 "x"' for _ in range(30000)) + "\n"
        + "".join(f"a{i} ::= a{i + 1}\n" for i in range(20000)) + 'a20000 ::= "q"',
        # The same, and no two nodes are equal: what would be kept grows as well.
        "root ::= " + "|".join('a0 "x"' for _ in range(30000)) + "\n"
        + "".join(f'a{i} ::= a{i + 1}|a{i + 1}"z"\n' for i in range(20000)) + 'a20000 ::= "q"',
    ],
)  # fmt: skip
def test_a_beginning_with_too_many_ways_is_refused(grammar):
    with pytest.raises(GrammarError) as caught:
        Grammar(grammar)
    assert caught.value.reason == "it is too ambiguous"


def test_many_calls_before_many_ways_on():
    calls, ways = "|".join(["x ()"] * 20000), "|".join(["()"] * 100000)
    grammar = Grammar(f'root ::= ({calls}) ({ways}) "z"\nx ::= "q"')
    assert grammar.accepts(b"qz")


def test_a_grammar_that_nobody_uses_gives_back_what_it_learned():
    grammar = Grammar('root ::= "(" root ")" | "x"')
    for _ in range(2):
        assert grammar.accepts_prefix(b"(" * 500_000)  # a node for each
        for _ in range(2000):  # it is given back beside whoever left
            if grammar.n_bytes < 5_000_000:
                break
            time.sleep(0.01)
        assert grammar.n_bytes < 5_000_000


def test_a_subset_that_doubles_with_each_letter_stays_bounded():
    """Its deterministic automaton has two to the thirtieth states; only those that a text meets are made."""
    late = Grammar('root ::= [ab]* "a" [ab]{30}')
    random = np.random.default_rng(3)
    text = bytes(random.choice([97, 98], 20000).astype(np.uint8))
    assert late.accepts(text) == (text[-31:-30] == b"a")
    assert late.n_bytes < 40_000_000


def test_a_text_is_never_led_into_a_dead_end():
    grammar = Grammar('root ::= "a" x "b" | "ac"\nx ::= ("c" [z-a])+ | "d" x')
    assert grammar.accepts(b"ac")
    assert not grammar.accepts_prefix(b"acb")
    assert grammar.accepts_prefix(b"addd")  # without an end, but never stuck


def test_deep_nesting_of_the_text_is_no_recursion():
    nest = Grammar('root ::= "(" root ")" | "x"')
    assert nest.accepts(b"(" * 100_000 + b"x" + b")" * 100_000)
    assert not nest.accepts(b"(" * 100_000 + b"x" + b")" * 99_999)


def test_endless_ambiguity_is_given_up():
    """Every split of the text counts; the work grows with its cube until the grammar may not do more."""
    worst = Grammar('root ::= s\ns ::= "a" s s | "a" s | "a"')
    assert worst.accepts(b"a" * 50)
    with pytest.raises(GrammarTooMuch):
        worst.accepts(b"a" * 20000)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    words = Words(write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.gguf"))
    yield Pieces(words.vocab), words
    words.close()


def token_of(words, text):
    return next(token for token in range(words.n_vocab) if words.piece(token) == text.encode())


def test_tokens_can_be_named(pieces):
    pieces, words = pieces
    matcher = Matcher(Grammar("root ::= <think> [^<]* </think> !<think>", pieces))
    think, end, a = (token_of(words, text) for text in ("<think>", "</think>", "a"))
    assert not matcher.allows(a)
    assert matcher.accept(think)
    assert matcher.allows(a)
    assert matcher.accept(a)
    assert not matcher.allows(think)
    assert matcher.accept(end)
    assert not matcher.may_end
    assert not matcher.allows(think)
    assert matcher.accept(a)
    assert matcher.may_end


def test_characters_in_pieces(pieces):
    """é and ü share their first byte; a class with one of them goes on with that one's second byte only."""
    pieces, words = pieces
    matcher = Matcher(Grammar('root ::= [é€] "!"', pieces))
    byte = {value: token_of_byte(words, value) for value in (0xC3, 0xA9, 0xBC, 0xE2, 0x82, 0x21)}
    assert not matcher.allows(byte[0x21])
    assert matcher.accept(byte[0xC3])
    assert not matcher.allows(byte[0xBC])
    assert not matcher.allows(byte[0x21])
    assert matcher.accept(byte[0xA9])
    assert matcher.accept(byte[0x21])
    assert matcher.may_end


def token_of_byte(words, value):
    return next(t for t in range(3, 259) if words.piece(t) == bytes([value]))


def test_the_end_comes_only_at_the_end(pieces):
    pieces, words = pieces
    matcher = Matcher(Grammar('root ::= "ab"', pieces))
    eos, ab = 2, token_of(words, "ab")
    assert not matcher.allows(eos)
    assert not matcher.accept(eos)
    assert matcher.accept(ab)
    assert matcher.allows(eos)
    row = np.zeros(words.n_vocab, np.float32)
    assert matcher.mask(row) == 1
    assert list(np.flatnonzero(row == 0)) == [eos]


def test_threads_may_share_a_grammar(pieces):
    pieces, words = pieces
    grammar = Grammar('root ::= "[" (root ("," root)*)? "]" | [a-d]{1,40}', pieces)
    wrong = []

    def walk(seed):
        random = np.random.default_rng(seed)
        matcher, text = Matcher(grammar), b""
        for _ in range(300):
            row = np.zeros(words.n_vocab, np.float32)
            matcher.mask(row)
            open_ = [int(t) for t in np.flatnonzero(row == 0) if t != 2]
            if not open_:
                break
            token = int(random.choice(open_))
            if not matcher.accept(token):
                wrong.append(text)
            text += words.piece(token)
        if not Grammar('root ::= "[" (root ("," root)*)? "]" | [a-d]{1,40}').accepts_prefix(text):
            wrong.append(text)

    threads = [threading.Thread(target=walk, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_it_learns_is_bounded_and_survives_forgetting(pieces):
    """A counter with many places: the grammar forgets on the way, the matcher's place stays right."""
    pieces, words = pieces
    grammar = Grammar('root ::= ([a-d]{60000} "x")*', pieces)
    matcher = Matcher(grammar)
    a, x = token_of(words, "a"), token_of(words, "x")
    for n in (60000, 60000):
        for _ in range(n):
            assert matcher.accept(a)
        assert not matcher.allows(a)
        assert matcher.accept(x)
    assert grammar.n_bytes < 40_000_000
