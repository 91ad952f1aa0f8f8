"""The tables of DRY's breakers that are kept between requests."""

import pytest

from llamad.api.request.dry_breakers import KEPT_MAX, Breakers
from llamad.api.request.errors import ApiError
from llamad.engine.testing.fake import Fake
from llamad.tokenizer.dry_breakers import pack_breakers
from llamad.tokenizer.vocab import Vocab


def test_the_last_used_are_kept():
    fake = Fake()
    vocab = Vocab(fake.table, fake.vocab, fake.n_vocab)
    breakers = Breakers()
    assert breakers.find(vocab, ("a",)) is None
    assert breakers.make(vocab, ("a",)) == pack_breakers(vocab, [b"a"])
    for i in range(KEPT_MAX - 1):
        breakers.make(vocab, (str(i),))
    assert breakers.find(vocab, ("a",)) is not None  # used now, so another one goes
    breakers.make(vocab, ("one more",))
    assert breakers.find(vocab, ("a",)) is not None
    assert breakers.find(vocab, ("0",)) is None


def test_another_vocabulary_has_tables_of_its_own():
    """They hold token ids. The model's file may be another one when its engine is started again."""
    first, second = Fake(), Fake()
    old, new = (Vocab(one.table, one.vocab, one.n_vocab) for one in (first, second))
    breakers = Breakers()
    breakers.make(old, ("a",))
    assert breakers.find(new, ("a",)) is None
    breakers.make(new, ("b",))
    assert breakers.find(old, ("a",)) is None
    assert breakers.find(new, ("b",)) is not None


def test_what_cannot_be_packed_is_the_requests_fault():
    fake = Fake()
    vocab = Vocab(fake.table, fake.vocab, fake.n_vocab)
    with pytest.raises(ApiError, match="dry_sequence_breakers"):
        Breakers().make(vocab, ("a",) * 65)
