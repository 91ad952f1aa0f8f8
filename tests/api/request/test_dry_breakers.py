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
    assert breakers.find(("a",)) is None
    assert breakers.make(vocab, ("a",)) == pack_breakers(vocab, [b"a"])
    for i in range(KEPT_MAX - 1):
        breakers.make(vocab, (str(i),))
    assert breakers.find(("a",)) is not None  # used now, so another one goes
    breakers.make(vocab, ("one more",))
    assert breakers.find(("a",)) is not None
    assert breakers.find(("0",)) is None


def test_what_cannot_be_packed_is_the_requests_fault():
    fake = Fake()
    vocab = Vocab(fake.table, fake.vocab, fake.n_vocab)
    with pytest.raises(ApiError, match="dry_sequence_breakers"):
        Breakers().make(vocab, ("a",) * 65)
