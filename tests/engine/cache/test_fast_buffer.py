"""The buffer for states in memory that a device copies to and from fast: when it is allocated and freed, and that what
is saved through it is the same."""

from __future__ import annotations

import random

import pytest
from support.states.adopting_engine import CUT, MANY, Chained, Cut, answered, until

from llamad.protocol.cache_memory import CacheMemory


def text(seed: int, n: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(33, 120) for _ in range(n))


def engine(
    front: CacheMemory, kind: str, *, n_slots: int = 2, has_device: bool = True, cache_bytes: int = MANY
) -> Chained:
    options = {"n_slots": n_slots, "has_device": has_device, "cache_bytes": cache_bytes}
    return Chained(front, **options) if kind == "ranges" else Cut(front, kind, **options)


def saved(front: CacheMemory) -> list[list[bytes]]:
    """The bytes of all prompts, part by part."""
    prompts = []
    for entry in sorted(front.entries(), key=lambda entry: entry.n_tokens):
        segments = front.pin(entry.id)
        assert segments is not None
        prompts.append([bytes(segment.data) for segment in segments])
        for segment in segments:
            segment.data.release()
        front.unpin(entry.id)
    return prompts


def talk(h: Chained) -> None:
    """Two conversations that grow by turns, with another one between them that takes the slot."""
    first, second = text(1, 1300), text(2, 700)
    for i in range(3):
        for turn in (first, second):
            n_cached = h.keep(turn)
            assert i == 0 or n_cached == len(turn) - 90
        first, second = (answered(turn) + text(10 + i, 90) for turn in (first, second))
    h.keep(text(3, 600))


@pytest.mark.parametrize("kind", CUT)
def test_what_is_saved_through_it_is_the_same(kind):
    """A device without such memory gives the same bytes."""
    fronts = CacheMemory(), CacheMemory()
    with engine(fronts[0], kind, n_slots=1) as h:
        talk(h)
        assert h.fake.n_page_buffers == 1
        assert h.stats()["cache_buffer"] > 0
    with engine(fronts[1], kind, n_slots=1) as h:
        h.fake.refuse_pages()
        talk(h)
        assert h.fake.n_page_buffers == 0 < h.fake.n_page_requests
    assert saved(fronts[0]) == saved(fronts[1])
    with engine(fronts[0], kind, n_slots=1) as h:
        last = answered(answered(answered(text(1, 1300)) + text(10, 90)) + text(11, 90))
        assert h.ask(last + b"more") == len(last)


def test_parts_that_are_saved_by_themselves_need_none():
    with engine(CacheMemory(), "ranges") as h:
        for seed, n in enumerate((600, 3000, 1100)):
            h.keep(text(seed, n))
        assert h.fake.n_page_requests == 0


def test_a_device_without_such_memory_is_asked_once():
    with engine(CacheMemory(), "streams") as h:
        h.fake.refuse_pages()
        for seed in range(3):
            h.keep(text(seed, 900))
        assert h.fake.n_page_requests == 1


def test_a_cpu_has_none():
    with engine(CacheMemory(), "streams", has_device=False) as h:
        h.keep(text(1, 900))
        assert h.fake.n_page_requests == 0


def test_it_is_freed_with_the_engine():
    with engine(CacheMemory(), "streams") as h:
        h.keep(text(1, 900))
        assert h.fake.n_page_buffers == 1
    assert h.fake.n_page_buffers == 0


def test_it_is_freed_when_nothing_was_saved_for_a_while():
    with engine(CacheMemory(), "streams") as h:
        h.keep(text(1, 900))
        assert h.fake.n_page_buffers == 1
        until(lambda: h.fake.n_page_buffers == 0, 90)  # after 30 s
        assert h.stats()["cache_buffer"] == 0
        h.keep(text(2, 1000))  # and it is made again
        assert h.fake.n_page_buffers == 1


@pytest.mark.parametrize("kind", ["streams", "unified window"])
def test_it_counts_in_the_limit(kind):
    most = 300_000
    front = CacheMemory()
    with engine(front, kind, n_slots=1, cache_bytes=most) as h:
        for seed in range(9):
            h.keep(text(seed, 2000 + seed))
            assert h.stats()["cache_bytes"] + h.stats()["cache_buffer"] <= most
        assert h.stats()["cache_dropped"] > 0
        assert h.fake.n_page_buffers == 1
