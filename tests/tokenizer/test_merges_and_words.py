"""Texts that are tokenized word by word: the tokens are llama.cpp's, whatever the text and the tokenizer."""

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.live_daemon import model_path
from support.models.tiny_model import tokenizer_of, write_tiny

from llamad._llama import ffi, lib
from llamad.flags.parse import parse
from llamad.tokenizer.vocab_file import VocabFile

# One of each family first: the others have the same expressions under another name.
PRES = ["gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-v3"]
ALIASES = [
    "olmo",
    "starcoder",
    "command-r",
    "exaone",
    "llama3",
    "llama-v3",
    "lfm2",
    "falcon3",
    "glm4",
    "stablelm2",
]
ALIASES += ["deepseek-r1-qwen", "llama4"]
PIECES = ["the", "of", "Hello", "wor", "ld", "I", "don't", "WE'LL", "x's", "1", "23", "4567"]
PIECES += [
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    ".",
    ",",
    "...",
    "?!",
    "(",
    "_",
    "-",
    "'",
    '"',
]
PIECES += [
    "<",
    "<|",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<repo_name>",
    "x" * 30,
    "if (a == b) {\n",
]
PIECES += ["\u00e9", "\u00df", "\u0301", "\u00a0", "\u65e5\u672c", "\U0001f999", "\0", "/", "1.5"]
WAYS = tuple(itertools.product((False, True), repeat=2))  # add_special, parse_special
ONE_WAY = ((False, True),)  # enough for long texts of plain words


def pieces(picked: bytes) -> str:
    return "".join(PIECES[byte % len(PIECES)] for byte in picked)


# Hypothesis takes as long for an element of a list as for all bytes of a string.
TEXTS = st.one_of(
    st.binary(max_size=60).map(lambda picked: pieces(picked).encode()),
    st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace")),
    st.binary(max_size=60),
)


def plain(vocab, text: bytes, n_max: int, add_special: bool, parse_special: bool) -> tuple[int, list[int]]:
    """llama.cpp's own answer for the whole text."""
    tokens = ffi.new("llama_token[]", n_max + 1)
    n = lib.llamad_tokenize(vocab, text, len(text), tokens, n_max, add_special, parse_special, True)
    return n, list(tokens[0 : max(0, n)])


class Opened:
    def __init__(self, path: str, *flags: str) -> None:
        settings = parse(["-m", path, *flags], {}).settings.model
        self.file = VocabFile(path, settings.override_kv, api_only=settings.llama_api_only)
        self.words = self.file.vocab(special=False)
        self.vocab = lib.llama_model_get_vocab(self.file.handle)
        t_end = time.monotonic() + 60
        while self.knows_words and not lib.llamad_knows_merges(self.vocab):
            assert time.monotonic() < t_end, "the merges were not read"
            time.sleep(0.001)

    @property
    def knows_words(self) -> bool:
        return lib.llamad_knows_words(self.vocab) == 1

    def check(self, text: bytes, ways: tuple[tuple[bool, ...], ...] = WAYS) -> None:
        for add_special, parse_special in ways:
            n, expected = plain(self.vocab, text, len(text) * 3 + 8, add_special, parse_special)
            if n < 0:  # bytes that llama.cpp takes for a code point that there is not
                with pytest.raises(ValueError, match="could not be tokenized"):
                    self.words.tokenize(text, add_special, parse_special)
                continue
            for _ in range(2):  # unknown words, then known ones
                ids = memoryview(self.words.tokenize(text, add_special, parse_special)).cast("i").tolist()
                assert ids == expected, (text, add_special, parse_special)

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        del self.words, self.file


def tiny(folder, **options) -> str:
    return write_tiny(folder / "tiny.gguf", model_path(), n_ctx=64, **options)


def with_pre(folder, pre: str) -> Opened:
    return Opened(tiny(folder, tokenizer={"tokenizer.ggml.pre": pre}))


@pytest.fixture(scope="module", params=PRES)
def opened(request, tmp_path_factory):
    with with_pre(tmp_path_factory.mktemp("pre"), request.param) as found:
        assert found.knows_words
        yield found


@given(TEXTS)
@settings(max_examples=60, deadline=None)
def test_the_tokens_are_llama_cpps(opened, text):
    opened.check(text)


WORDS = st.lists(st.binary(min_size=1, max_size=4).map(pieces), max_size=12)


@given(WORDS, st.integers(min_value=0, max_value=4095))
@settings(max_examples=60, deadline=None)
def test_words_that_are_asked_for_beside_others_than_their_neighbours(opened, words, known):
    some = [word for i, word in enumerate(words) if known >> i & 1]
    opened.check(" ".join(some).encode())
    opened.check(" ".join(words).encode())


def test_long_texts_of_known_and_of_unknown_words(opened):
    opened.check(b"the quick brown fox jumps over it all the time\nand nobody knows why " * 400, ONE_WAY)
    opened.check(b" ".join(b"w%dx" % i for i in range(3000)), ONE_WAY)
    every = (bytes([97 + i % 26, 97 + i // 26 % 26, 97 + i // 676]) for i in range(17576))
    opened.check(b" ".join(every), ONE_WAY)


STARTS = (" ", " ", "", "  ", "(", "\n")
LETTERS = "etaoinshrdluvwzxETAOIN"
ENDS = ("", "", "", ".", ",", "?!", ").", "...", ":", ";", "-", "'s", "'", "s'", "(", '"')


def nearly_plain(picked: bytes) -> str:
    """A plain word, or one that is nearly so."""
    start, end, *letters = picked
    word = "".join(LETTERS[byte % len(LETTERS)] for byte in letters)
    return STARTS[start % len(STARTS)] + word + ENDS[end % len(ENDS)]


PLAIN = st.binary(min_size=3, max_size=11).map(nearly_plain)


@given(st.lists(PLAIN, min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_plain_words_are_put_together_as_llama_cpp_does(opened, words):
    opened.check("".join(words).encode())


def test_every_token_that_is_a_word_and_every_two_of_them(opened):
    """Among them are those that no merges lead to."""
    words = dict.fromkeys(text.removeprefix("\u0120") for text in vocabulary()[0])
    plain_words = [word for word in words if word.isascii() and word.isalpha()]
    opened.check("".join(f" {word}" for word in plain_words).encode(), ONE_WAY)
    opened.check("".join(f" {word}{word}." for word in plain_words[::7]).encode(), ONE_WAY)


def asked(opened: Opened, text: bytes, add_special: bool = False) -> int:
    """For how many bytes of it llama.cpp was asked."""
    opened.words.tokenize(text, add_special, True)
    return lib.llamad_words_asked()


def test_known_words_are_not_asked_for_again(tmp_path):
    with Opened(tiny(tmp_path)) as opened:
        assert asked(opened, b"1me w2rds o3 4 t5xt") == 19
        assert asked(opened, b"1me w2rds o3 4 t5xt") == 0
        assert asked(opened, b"1me t5xt o3 w2rds", add_special=True) == 0
        assert asked(opened, b"1me n6w w2rds") == 4
        assert asked(opened, b"1me w2rds " + b"x" * 40) == 41
        assert asked(opened, b"1me w2rds " + b"x" * 40) == 41  # too long to be kept
        many = b"1me w2rds " * 10000
        # The word has not come behind a space before; in the second part of the text it is known.
        assert asked(opened, many) == (1 << 16) // 10 * len(b" 1me") + 1
        assert asked(opened, many) == 0


def test_plain_words_are_not_asked_for_at_all(tmp_path):
    with Opened(tiny(tmp_path)) as opened:
        assert asked(opened, b"Some words, which nobody HAS SEEn (qvzzhk): xkwt qjxz... and So ON.") == len(
            " (qvzzhk):"
        )
        assert asked(opened, b"HelloWorld iPhone don't well-known") == len(
            "HelloWorld iPhone don't well-known"
        )


def test_special_tokens_that_are_no_part_of_a_plain_word_do_not_matter(tmp_path):
    with Opened(tiny(tmp_path, tokenizer=with_token(40000, "  ", 4))) as opened:
        assert asked(opened, b"Some words, which nobody has seen: xkwt qjxz.") == 0
        opened.check(b"Some words,  which nobody has seen: xkwt   qjxz.")


def test_a_model_that_is_used_or_closed_while_its_merges_are_read(tmp_path):
    path = tiny(tmp_path)
    text = b"Some words, which nobody has seen: xkwt qjxz."
    for n in (0, 1, 200):
        file = VocabFile(path, (), api_only=False)
        words = file.vocab(special=False)
        _, expected = plain(lib.llama_model_get_vocab(file.handle), text, len(text), False, True)
        for _ in range(n):
            assert memoryview(words.tokenize(text, False, True)).cast("i").tolist() == expected
        del words, file


def test_merges_of_a_file_that_was_written_to_since_are_not_used(tmp_path):
    """It is read again beside the start, which takes a while: six tries to be faster."""
    path = tiny(tmp_path)
    for _ in range(6):
        file = VocabFile(path, (), api_only=False)
        os.utime(path)
        time.sleep(0.5)
        is_used = lib.llamad_knows_merges(lib.llama_model_get_vocab(file.handle)) == 1
        del file
        if not is_used:
            return
    pytest.fail("they were used")


def test_a_word_that_no_merges_lead_to(tmp_path):
    """Some tokenizers take it all the same."""
    tokens, _ = vocabulary()
    tokens[40000] = "\u0120qvzzhk"
    tokenized = []
    for pre in ("smollm", "llama-bpe"):
        changed = {"tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens}
        with Opened(tiny(tmp_path, tokenizer=changed)) as opened:
            opened.check(b"a qvzzhk, and qvzzhkqvzzhk.")
            tokenized.append(bytes(opened.words.tokenize(b" qvzzhk", False, True)))
    assert len(tokenized[0]) > len(tokenized[1]) == 4


@pytest.mark.parametrize("merge", ["Q V", "QV ZZ", "\u0120 QV", "QVQV ."])
def test_merges_to_something_that_is_no_token(tmp_path, merge):
    merges = [merge, "Q V", "Z Z", *tokenizer_of(model_path())["tokenizer.ggml.merges"][0]]
    with Opened(tiny(tmp_path, tokenizer={"tokenizer.ggml.merges": merges})) as opened:
        opened.check(b"QV QVZZ QVQV. ZZQVX QQVV ZZ ZQ VZ")


def test_of_two_merges_of_a_pair_the_first_holds(tmp_path):
    merges = tokenizer_of(model_path())["tokenizer.ggml.merges"][0]
    with Opened(tiny(tmp_path, tokenizer={"tokenizer.ggml.merges": [*merges[200:], *merges]})) as opened:
        opened.check(b"In the beginning there was nothing. And then it exploded, HAPPILY.")


@pytest.mark.parametrize("pre", ALIASES)
def test_other_names(tmp_path, pre):
    with with_pre(tmp_path, pre) as opened:
        assert opened.knows_words
        opened.check("".join(PIECES).encode())
        opened.check("".join(reversed(PIECES)).encode())
        opened.check(b" ".join(piece.encode() for piece in PIECES))


def vocabulary() -> tuple[list[Any], list[int]]:
    tokenizer = tokenizer_of(model_path())
    return [*tokenizer["tokenizer.ggml.tokens"][0]], [*tokenizer["tokenizer.ggml.token_type"][0]]


def with_token(at: int, text: str | bytes, kind: int) -> dict[str, list]:
    tokens, types = vocabulary()
    tokens[at], types[at] = text, kind
    return {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}


def test_no_words_where_special_tokens_eat_spaces(tmp_path):
    """llama.cpp has all special tokens do so in models of this name, which have these three."""
    tokens, types = vocabulary()
    for at, text in enumerate(("</s>", "<s>", "<unk>"), start=40000):
        tokens[at], types[at] = text, 3
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
    with Opened(tiny(tmp_path, name="phi-3 of a kind", tokenizer=changed)) as opened:
        assert not opened.knows_words
        opened.check(b"a b<|im_end|> c d<|im_start|>  e f <|im_end|> g")


# One is five bytes as it stands, and three as GPT-2 writes bytes; the last is the half of a character.
@pytest.mark.parametrize("text", ["in a", "x ", "one two", "\u00e9\u00e9x", b"\xc3"])
def test_no_words_where_a_special_token_reaches_over_their_ends(tmp_path, text):
    with Opened(tiny(tmp_path, tokenizer=with_token(40000, text, 4))) as opened:
        assert not opened.knows_words
        opened.check(b"once in a while one two three x y z a b\nc d")
        opened.check("\u00e9ab q\4\4".encode())
        opened.check(b"what q\4\4")


@pytest.mark.parametrize(
    "text", ["<x>", "bq", " bq", "q.", "abq~", " <x", "  ", "\n ", ".\n", "<\uff5cx\u2581y\uff5c>", "z" * 300]
)
@pytest.mark.parametrize("kind", [3, 4])  # control, user defined
def test_special_tokens_within_words(tmp_path, text, kind):
    with Opened(tiny(tmp_path, tokenizer=with_token(40000, text, kind))) as opened:
        assert opened.knows_words
        opened.check(f"cabq~ abq~{text} of {text}the {text} {text}{text} rest.\n\n  \n {text}".encode())
        opened.check(text.encode())
        opened.check(b"<x> <x>abq~ a\xef\xbd\x9cb  .\n .")


def test_a_byte_without_a_token_is_left_out(tmp_path):
    tokens, _ = vocabulary()
    tokens[tokens.index("z")] = "not a letter of any text"
    with Opened(tiny(tmp_path, tokenizer={"tokenizer.ggml.tokens": tokens})) as opened:
        assert opened.knows_words
        opened.check(b"a zz b z czd and the rest zqz")


def test_no_words_where_the_tokenizer_is_not_known(tmp_path):
    with Opened(tiny(tmp_path, tokenizer={"tokenizer.ggml.pre": "bloom"})) as opened:
        assert not opened.knows_words
        opened.check(b"Hello world and HelloWorld")
    with Opened(tiny(tmp_path), "--override-kv", "tokenizer.ggml.pre=str:llama-bpe") as opened:
        assert not opened.knows_words
        opened.check(b"Hello world 12345 and so on")


def test_another_model_has_words_of_its_own(tmp_path):
    """The second may lie where the first one lay."""
    tokens, _ = vocabulary()
    the, of = tokens.index("\u0120the"), tokens.index("\u0120of")
    tokenized = []
    for wanted in ((the, of), (of, the), (the, of)):
        tokens[wanted[0]], tokens[wanted[1]] = "\u0120the", "\u0120of"
        with Opened(tiny(tmp_path, tokenizer={"tokenizer.ggml.tokens": tokens})) as opened:
            assert opened.knows_words
            opened.check(b"much of the rest")
            tokenized.append(bytes(opened.words.tokenize(b"much of the rest", False, True)))
    assert tokenized[0] == tokenized[2] != tokenized[1]


@pytest.mark.parametrize(("bos", "eos"), [(True, False), (False, True), (True, True)])
def test_texts_have_a_token_before_and_behind_them(tmp_path, bos, eos):
    changed = {"tokenizer.ggml.add_bos_token": bos, "tokenizer.ggml.add_eos_token": eos}
    with Opened(tiny(tmp_path, tokenizer=changed)) as opened:
        assert opened.knows_words
        whole = memoryview(opened.words.tokenize(b"some words", True, True)).cast("i").tolist()
        bare = memoryview(opened.words.tokenize(b"some words", False, True)).cast("i").tolist()
        assert len(whole) == len(bare) + bos + eos
        first = opened.words.piece(lib.llama_vocab_bos(opened.vocab), True)
        last = opened.words.piece(lib.llama_vocab_eos(opened.vocab), True)
        for text in (b"", b" ", b"some words", b"some words " * 20):
            opened.check(text)
            opened.check(first + text)
            opened.check(text + last)
        for n_max in range(len(whole) + 2):
            check_room(opened, b"some words", n_max, add_special=True)


def test_threads_have_words_of_their_own(tmp_path):
    with Opened(tiny(tmp_path)) as opened:
        texts = [b" ".join(b"w%dx%d" % (i * k, k) for i in range(40)) for k in range(60)]
        expected = [plain(opened.vocab, text, 1000, False, True)[1] for text in texts]

        def run(start: int) -> bool:
            same = (
                memoryview(opened.words.tokenize(texts[(start + i) % 60], False, True)).cast("i").tolist()
                == expected[(start + i) % 60]
                for i in range(600)
            )
            return all(same)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(run, range(0, 60, 15)))


def test_two_models_at_once(tmp_path):
    for name in ("gpt-2", "llama-bpe"):
        (tmp_path / name).mkdir()
    text = b"numbers 12345 and words of the rest"
    with with_pre(tmp_path / "gpt-2", "gpt-2") as one, with_pre(tmp_path / "llama-bpe", "llama-bpe") as other:
        assert one.knows_words
        assert other.knows_words
        for _ in range(2):
            one.check(text)
            other.check(text)


def check_room(opened: Opened, text: bytes, n_max: int, add_special: bool) -> None:
    """The table's function."""
    tokens = ffi.new("llama_token[]", n_max + 1)
    tokens[n_max] = -7
    n_tokens = lib.llamad_tokenize(opened.vocab, text, len(text), tokens, n_max, add_special, True, False)
    n, expected = plain(opened.vocab, text, n_max, add_special, True)
    assert n_tokens == n
    assert list(tokens[0 : max(0, n)]) == expected
    assert tokens[n_max] == -7


def test_too_little_room_is_told_as_llama_cpp_tells_it(opened):
    text = b"so many words for so little room, and one more at the end of them"
    n, _ = plain(opened.vocab, text, 100, False, True)
    for n_max in (0, 1, n - 1, n, n + 1):
        check_room(opened, text, n_max, add_special=False)
