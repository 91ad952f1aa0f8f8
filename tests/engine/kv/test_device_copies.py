"""Parked prefixes stay on a device that has room, and return from there. The prompt cache has them, too."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine_harness import Harness

from llamad.engine.testing.fake import Fake

N_CELLS = 4096
N_STATE = 14108  # bytes of 703 tokens in a cache
ROOM = 1 << 20
KINDS: dict[str, dict[str, int]] = {"cache": {}, "window": {"n_swa": 64}, "hybrid": {"hybrid": 1}}


def text(seed: int, n: int = 700) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


def harness(
    device_bytes: int = ROOM, margin: int = 0, kind: str = "cache", decode_us: int = 0, **options
) -> Harness:
    fake = Fake(n_ctx=N_CELLS, n_cells=N_CELLS, n_seqs=4, unified=True, decode_us=decode_us, **KINDS[kind])
    fake.set_device_bytes(device_bytes)
    n_swa = KINDS[kind].get("n_swa", 0)
    given = {"n_slots": 4, "n_ctx": N_CELLS, "n_cells": N_CELLS, "cache_bytes": 1 << 30, "has_device": True}
    given |= {"n_swa": n_swa, "n_window": fake.size("window") if n_swa else 0, "can_share": kind != "hybrid"}
    h = Harness(fake, **(given | options))
    h.core.allow_copies(h.core.probe(1)[0], margin)
    return h


def ask(h: Harness, prompt: bytes, n_cached: int | None = None, **options) -> int:
    """The task's slot."""
    task = h.submit(prompt, **({"n_predict": 3} | options))
    h.wait(task)
    assert h.text(task) == answer(prompt)
    assert n_cached is None or h.n_cached(task) == n_cached
    return h.slot(task)


def answer(prompt: bytes) -> bytes:
    return bytes(prompt[-1] + k for k in (1, 2, 3))


def continued(seed: int) -> bytes:
    return text(seed) + answer(text(seed)) + b"more"


def hits(h: Harness) -> tuple[int, int]:
    """Restored prefixes, of which those that came from the device."""
    stats = h.stats()
    assert stats["device_bytes"] >= h.fake.copies_bytes
    return stats["cache_hits"], stats["device_hits"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_returns_from_the_device(kind):
    with harness(kind=kind) as h:
        slot = ask(h, text(1))
        ask(h, b"short")
        assert h.fake.held(slot) == 0
        assert ask(h, continued(1), 703) == slot
        assert hits(h) == (1, 1)


def test_pages_are_locked_only_without_a_copy():
    with harness() as h:
        ask(h, text(1))
        h.until(lambda: h.stats()["cache_saves"] == 1 and h.fake.copies_bytes > 0)
        ask(h, text(2))
        assert h.fake.n_locked == 0


def test_another_slot_restores_the_copy_too():
    with harness() as h:
        slot = ask(h, text(1))
        ask(h, b"short")
        other = (slot + 2) % 4
        ask(h, continued(1), 703, id_slot=other)
        ask(h, text(2), id_slot=slot)  # its copy replaces the first one
        ask(h, b"short", id_slot=(slot + 1) % 4)
        ask(h, text(2) + answer(text(2)) + b"more", 703)
        assert hits(h) == (2, 2)


def test_a_copy_is_replaced_when_the_conversation_has_grown():
    with harness() as h:
        ask(h, text(1))
        prompt = text(1)
        for i in range(4):
            ask(h, b"short")
            prompt += answer(prompt) + b"and then"
            ask(h, prompt, 703 + 11 * i)
        assert hits(h) == (4, 4)
        assert h.fake.copies_bytes < 2 * N_STATE


def test_without_room_on_the_device_it_returns_from_the_host():
    with harness(device_bytes=2 * N_STATE - 1000) as h:  # as much must stay free as copies take
        ask(h, text(1))
        h.until(lambda: h.fake.n_locked == 1)
        ask(h, b"short")
        ask(h, continued(1), 703)
        assert hits(h) == (1, 0)
        assert h.fake.copies_bytes == 0


def test_a_failed_restore_falls_back_to_the_host():
    with harness() as h:
        ask(h, text(1))
        ask(h, b"short")
        h.fake.fail_state()
        ask(h, continued(1), 703)
        assert hits(h) == (1, 0)


def test_copies_take_at_most_half_of_what_is_free_beyond_the_margin():
    with harness(device_bytes=5 * N_STATE, margin=N_STATE // 2) as h:
        for i in range(4):
            ask(h, text(i), id_slot=i)
        ask(h, b"short", id_slot=3)
        assert N_STATE < h.fake.copies_bytes <= 2 * N_STATE
        for i in range(3):
            ask(h, continued(i), 703)
        n_all, n_device = hits(h)
        assert n_all == 3
        assert 0 < n_device < 3


def test_copies_of_parked_prefixes_make_way_when_memory_is_short():
    with harness(margin=ROOM // 2) as h:
        ask(h, text(1), id_slot=0)
        ask(h, text(2), id_slot=1)
        ask(h, b"short", id_slot=2)
        assert h.fake.copies_bytes > N_STATE
        h.fake.set_device_bytes(ROOM // 2)  # somebody else has taken the rest
        ask(h, text(3), id_slot=2)
        ask(h, b"short", id_slot=3)
        assert h.fake.copies_bytes < 1000
        ask(h, continued(1), 703)
        ask(h, continued(2), 703)
        assert hits(h) == (2, 0)


def test_a_new_context_has_no_copies():
    with harness() as h:
        ask(h, text(1))
        ask(h, b"short")
        h.fake.fail_next(-3)
        ask(h, b"other")
        assert h.fake.n_rebuilds == 1
        assert h.stats()["device_bytes"] == 0
        ask(h, continued(1), 703)
        assert hits(h)[1] == 0


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from([0, N_STATE, 4 * N_STATE, ROOM])),
        min_size=5,
        max_size=25,
    ),
    cache_bytes=st.sampled_from([3 * N_STATE, ROOM]),
)
def test_every_answer_is_right_whatever_memory_comes_and_goes(kind, steps, cache_bytes):
    prompts = [text(i, 520 + 20 * i) for i in range(6)]
    with harness(margin=N_STATE, kind=kind, cache_bytes=cache_bytes) as h:
        for i, device_bytes in steps:
            h.fake.set_device_bytes(max(device_bytes, h.fake.copies_bytes))
            ask(h, prompts[i])
            prompts[i] += answer(prompts[i]) + b"more"


def test_beside_other_slots_a_copy_is_made_only_once_it_is_known_to_be_cheap():
    """The streams of the other slots wait for it."""
    with harness(decode_us=50_000) as h:  # a copy may take as long as a step
        neighbour = h.submit(b"neighbour", n_predict=3000)
        h.wait_first(neighbour)
        ask(h, text(1))
        h.until(lambda: h.stats()["cache_saves"] >= 1)
        assert h.end(neighbour) is None
        assert h.fake.copies_bytes == 0
        h.port.abort(neighbour)
        h.wait(neighbour)
        ask(h, text(2))  # nothing else runs
        h.until(lambda: h.fake.copies_bytes > 0)
        n_bytes = h.fake.copies_bytes
        neighbour = h.submit(b"neighbour", n_predict=3000)
        h.wait_first(neighbour)
        ask(h, text(3))
        h.until(lambda: h.fake.copies_bytes > n_bytes)
        assert h.end(neighbour) is None
        h.port.abort(neighbour)
        h.wait(neighbour)
