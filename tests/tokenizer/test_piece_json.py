"""The JSON of tokens with their pieces, against the same made of Python objects."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamad.engine.testing.fake import Fake
from llamad.tokenizer.piece_json import TooLarge, pieces_json
from llamad.tokenizer.vocab import Vocab


@pytest.fixture(scope="module")
def vocab():
    fake = Fake()
    words = Vocab(fake.table, fake.vocab, fake.n_vocab)
    yield words
    del words


def piece(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def test_every_token(vocab):
    ids = range(vocab.n_vocab)
    pieces = json.loads(pieces_json(vocab, struct.pack(f"={len(ids)}i", *ids), 1 << 30))
    assert pieces == {"tokens": [{"id": one, "piece": piece(vocab.piece(one, True))} for one in ids]}


@given(st.lists(st.integers(0, 255), max_size=50))
def test_any_tokens(vocab, ids):
    packed = struct.pack(f"={len(ids)}i", *ids)
    answer = pieces_json(vocab, packed, 1 << 30)
    assert json.loads(answer) == {
        "tokens": [{"id": one, "piece": piece(vocab.piece(one, True))} for one in ids]
    }
    if ids:
        with pytest.raises(TooLarge):
            pieces_json(vocab, packed, len(answer) // 2)
