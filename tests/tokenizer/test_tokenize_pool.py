"""The tokenizing threads: every text gets its own tokens, whatever happens to the others."""

from __future__ import annotations

import select
from functools import partial

from llamad.engine.testing.fake import Fake
from llamad.tokenizer.tokenize_pool import Tokenizing
from llamad.tokenizer.vocab import Vocab

WAIT_MS = 20_000


def poll_until(tokenizing: Tokenizing, n: int) -> None:
    poll = select.poll()
    poll.register(tokenizing.fd, select.POLLIN)
    while n > 0:
        assert poll.poll(WAIT_MS), f"{n} texts never came back"
        n -= tokenizing.poll()
    assert n == 0
    assert not poll.poll(0)


def test_every_text_gets_its_own_tokens() -> None:
    fake = Fake()
    vocab = Vocab(fake.table, fake.vocab, fake.n_vocab)
    tokenizing = Tokenizing(vocab, 3)
    texts = [b"%d" % i * (i % 50) for i in range(500)]
    tokens: dict[int, bytes | None] = {}
    for i, text in enumerate(texts):
        tokenizing.submit(text, i % 2 == 0, True, partial(tokens.__setitem__, i))
    poll_until(tokenizing, len(texts))
    for i, text in enumerate(texts):
        assert tokens[i] == vocab.tokenize(text, i % 2 == 0, True), text


def test_a_callback_that_fails_costs_the_others_nothing(caplog) -> None:
    fake = Fake()
    tokenizing = Tokenizing(Vocab(fake.table, fake.vocab, fake.n_vocab), 1)
    results: list[bytes | None] = []

    def fail(tokens: bytes | None) -> None:
        raise RuntimeError("it fails")

    for callback in (results.append, fail, results.append):
        tokenizing.submit(b"abc", False, True, callback)
    poll_until(tokenizing, 3)
    assert len(results) == 2
    assert "it fails" in caplog.text


def test_what_nobody_waits_for_any_more_is_let_go() -> None:
    """Threads and texts end with the object, also where some were never taken or never handed out."""
    fake = Fake()
    vocab = Vocab(fake.table, fake.vocab, fake.n_vocab)
    for _ in range(20):
        tokenizing = Tokenizing(vocab, 2)
        for _ in range(50):
            tokenizing.submit(b"x" * 100, False, True, lambda tokens: None)
        del tokenizing
