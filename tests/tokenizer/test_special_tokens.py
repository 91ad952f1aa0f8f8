"""Texts of many special tokens: split as llama.cpp does, in time that grows with the text and not with its square."""

import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.live_daemon import model_path
from support.models.special_vocabs import CONTROL, PLAIN, TEXTS, VOCABS, OpenVocab, write_special_vocab

PIECES = [
    *CONTROL,
    *PLAIN,
    *TEXTS,
    "<",
    "<|",
    "|>",
    "<|im",
    " ",
    "\t",
    "\r\n",
    "\u00a0",
    "word of text",
    "\0",
]
SECONDS_MAX = 30 * float(os.environ.get("LLAMAD_TEST_PATIENCE", "1"))  # sanitizers make everything slower
BYTES = [piece.encode() for piece in PIECES] + [b"\xff", b"\xc3", b"\xe6\x97", b"\xed\xa0\x80"]


@pytest.fixture(scope="module", params=[*VOCABS, "bpe, api only"])
def opened(request, tmp_path_factory):
    kind = VOCABS[request.param.removesuffix(", api only")]
    path = write_special_vocab(tmp_path_factory.mktemp("vocab") / "vocab.gguf", **kind)
    vocab = OpenVocab(path, api_only=request.param.endswith("api only"))
    yield vocab
    vocab.close()


@given(st.lists(st.sampled_from(BYTES), min_size=30, max_size=150).map(b"".join))
@settings(max_examples=75, deadline=None)
def test_mixes_of_special_tokens_and_text(opened, text):
    opened.check(text)


@given(st.text(st.sampled_from("<ab> \n|x"), min_size=60, max_size=400).map(str.encode))
@settings(max_examples=75, deadline=None)
def test_tokens_that_overlap(opened, text):
    opened.check(text)


def test_runs_of_one_token(opened):
    for piece in BYTES:
        opened.check(piece * 200)


def test_white_space_beside_tokens_is_stripped_where_llama_cpp_does(tmp_path):
    right = OpenVocab(write_special_vocab(tmp_path / "r.gguf", **VOCABS["spm, the right stripped"]))
    left = OpenVocab(write_special_vocab(tmp_path / "l.gguf", **VOCABS["bpe, the left stripped"]))
    stripped = right.tokens(b"<|im_end|>" * 50, whole=False)
    assert right.tokens(b"<|im_end|> \n" * 50, whole=False) == stripped
    stripped = left.tokens(b"<mask>" * 50, whole=False)
    assert left.tokens(b" \n<mask>" * 50, whole=False) == stripped
    right.close()
    left.close()


@pytest.mark.parametrize("piece", [b"<|im_end|>", b"<|im_end|>a", b"<|im_end|> a\n"])
@pytest.mark.parametrize("api_only", [False, True])
def test_megabytes_of_special_tokens(piece, api_only):
    """llama.cpp alone takes 6 seconds for a third of it, and nine times as much for all."""
    opened = OpenVocab(model_path(), api_only=api_only)
    text = piece * (600_000 // len(piece))
    t_start = time.monotonic()
    ids = opened.tokens(text, whole=False)
    seconds = time.monotonic() - t_start
    few = opened.tokens(piece * 20, whole=True)
    opened.close()
    assert ids is not None
    assert ids[: len(few)] == few
    assert len(ids) == len(few) // 20 * (len(text) // len(piece))
    assert seconds < SECONDS_MAX, f"{seconds:.1f} s"


@pytest.mark.parametrize("kind", ["bpe by std::regex", "bpe"])
@pytest.mark.parametrize("piece", [b"a", b" ", b"!", b"\n", "日".encode()])
def test_a_word_that_is_longer_than_a_stack(tmp_path, kind, piece):
    """std::regex calls itself for each character: 25 KB were the end of the process."""
    opened = OpenVocab(write_special_vocab(tmp_path / "vocab.gguf", **VOCABS[kind]))
    assert opened.tokens(piece * 100_000, whole=False) is not None
    opened.close()


def test_a_text_that_no_stack_is_large_enough_for(tmp_path):
    opened = OpenVocab(write_special_vocab(tmp_path / "vocab.gguf", **VOCABS["bpe by std::regex"]))
    assert opened.tokens(b"a" * 3_000_000, whole=False) is None
    opened.close()
