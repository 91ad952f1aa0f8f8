"""Special tokens that mark calls and thoughts: hidden in a plain text, seen by tasks that ask for them."""

import pytest
from support.models.small_vocab import write_vocab

from bench.micro.llama_grammar import Words


@pytest.fixture
def words(tmp_path):
    words = Words(write_vocab(tmp_path / "vocab.gguf"))
    yield words
    words.close()


def test_only_special_tokens_that_are_one_token_become_markers(words):
    vocab = words.vocab
    control = memoryview(vocab.tokenize(b"<|x|>", False, True)).cast("i")
    assert len(control) == 1
    assert vocab.output(control[0]) == b""
    vocab.show_markers(["<|x|>", "<think>", "no token at all", ""])
    assert vocab.marked_output(control[0]) == b"<|x|>"
    assert vocab.output(control[0]) == b""
    others = [token for token in range(vocab.n_vocab) if token != control[0]]
    assert all(vocab.marked_output(token) == vocab.output(token) for token in others)


def test_without_markers_both_are_the_same(words):
    vocab = words.vocab
    vocab.show_markers(["<think>"])  # seen by everybody as it is
    assert all(vocab.marked_output(token) == vocab.output(token) for token in range(vocab.n_vocab))
