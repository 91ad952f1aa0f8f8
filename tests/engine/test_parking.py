"""With a GPU and slots that share one cache, idle prefixes wait in host memory while other slots work."""

import time

import pytest
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake
from llamad.protocol.blobs import Blob
from llamad.protocol.messages import ACTION_ERASE, ACTION_LOOK, ACTION_SAVE, ACTION_SHIFT, RESULT_DONE

N_CELLS = 4096


def text(seed: int, n: int = 700) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


def harness(**options) -> Harness:
    fake = Fake(n_ctx=N_CELLS, n_cells=N_CELLS, n_seqs=4, unified=True)
    given = {"n_slots": 4, "n_ctx": N_CELLS, "n_cells": N_CELLS, "cache_bytes": 1 << 30, "has_device": True}
    return Harness(fake, **(given | options))


def ask(h: Harness, prompt: bytes, **options) -> int:
    task = h.submit(prompt, **({"n_predict": 3} | options))
    h.wait(task)
    assert h.text(task) == bytes(prompt[-1] + k for k in (1, 2, 3))
    return task


def used(h: Harness) -> int:
    return h.fake.used()


def test_a_task_finds_the_cells_of_idle_prefixes_free():
    with harness() as h:
        ask(h, text(1))
        ask(h, text(2))
        assert used(h) == 703  # the first is parked
        ask(h, b"short")
        assert used(h) == 8


def test_a_conversation_that_returns_finds_all_of_it():
    with harness() as h:
        first = ask(h, text(1))
        ask(h, text(2))
        again = ask(h, text(1) + bytes(text(1)[-1] + k for k in (1, 2, 3)) + b"more")
        assert h.n_cached(again) == 703
        assert h.slot(again) == h.slot(first)
        assert h.stats()["n_evicted"] == 0


def test_what_is_idle_for_long_is_saved_and_locked_before_anybody_comes():
    with harness() as h:
        ask(h, text(1))
        h.until(lambda: h.stats()["cache_saves"] == 1 and h.fake.n_locked == 1)
        assert used(h) == 703  # it stays until somebody else needs the device
        ask(h, text(2))
        assert used(h) == 703
        assert h.stats()["cache_saves"] == 1


def test_what_is_not_saved_yet_stays_while_others_would_wait_for_it():
    with harness() as h:
        h.fake.take(1000)  # so slow that it outlasts the others on a busy machine, too
        other = h.submit(b"x", n_predict=4000)
        h.wait_first(other)
        ask(h, text(1))
        n_saves = h.stats()["cache_saves"]
        ask(h, text(2))
        assert h.stats()["cache_saves"] == n_saves
        h.port.abort(other)
        h.wait(other)


@pytest.mark.parametrize(
    "options",
    [{"has_device": False}, {"cache_bytes": 0}, {"cache_idle": False}],
    ids=["cpu", "no host cache", "--no-cache-idle-slots"],
)
def test_nothing_is_parked_where_it_makes_no_sense(options):
    with harness(**options) as h:
        ask(h, text(1))
        time.sleep(0.3)
        ask(h, text(2))
        assert used(h) == 2 * 703
        assert h.stats()["cache_saves"] == 0


def test_short_prefixes_stay():
    with harness() as h:
        ask(h, text(1, 400))
        ask(h, text(2, 400))
        assert used(h) == 2 * 403


def parked(h: Harness) -> int:
    """Return the slot whose prefix is parked."""
    slot = h.slot(ask(h, text(1)))
    ask(h, b"short")
    assert h.fake.held(slot) == 0
    return slot


def test_actions_find_a_parked_prefix_in_its_slot():
    with harness() as h:
        slot = parked(h)
        tokens = Blob(4 * N_CELLS)
        assert h.done(h.act(ACTION_LOOK, slot, tokens)).n_tokens == 703
        assert h.fake.held(slot) == 0  # to tell its tokens it need not come back
        state = Blob(1 << 20)
        saved = h.done(h.act(ACTION_SAVE, slot, state))
        assert (saved.result, saved.n_tokens) == (RESULT_DONE, 703)
        assert h.fake.held(slot) == 703
        assert bytes(token - 3 for token in h.core.slot_tokens(slot)[1:701]) == text(1)


def test_a_parked_prefix_can_be_shifted_and_erased():
    with harness() as h:
        slot = parked(h)
        shifted = h.done(h.act(ACTION_SHIFT, slot, n_keep=10, n_discard=100))
        assert (shifted.result, shifted.n_tokens) == (RESULT_DONE, 603)
        ask(h, b"another")
        assert h.fake.held(slot) == 0
        assert h.done(h.act(ACTION_ERASE, slot)).n_tokens == 603
        assert h.core.slot_tokens(slot) == []


def test_a_parked_prefix_that_the_cache_has_dropped_leaves_an_empty_slot():
    with harness(cache_bytes=24_000) as h:
        slot = parked(h)
        for i in range(2, 5):  # the cache has room for one
            ask(h, text(i), id_slot=(slot + 1) % 4)
            ask(h, b"short", id_slot=(slot + 2) % 4)
        saved = h.done(h.act(ACTION_SAVE, slot, Blob(1 << 20)))
        assert saved.n_tokens == 0
        assert h.n_cached(ask(h, text(1))) == 0
