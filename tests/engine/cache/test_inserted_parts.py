"""A prompt from disk that is inserted block by block, while the next blocks are being read."""

from __future__ import annotations

import gc
import random

import pytest
from support.states.adopting_engine import SIZES, Chained, answered, until
from support.states.inserted_parts import BLOCK, Block, blocks_of, insert, text

from llamad.engine.testing.fake import Fake
from llamad.protocol.blobs import Blob
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.messages import RESULT_DONE, RESULT_FAILED, RESULT_NO_ROOM

N = 1500
PROMPT = text(1, N)


@pytest.fixture(scope="module")
def blocks() -> list[Block]:
    return blocks_of(PROMPT)


def results(h: Chained, actions: list[int]) -> list[int]:
    return [h.done(action).result for action in actions]


@pytest.mark.parametrize("has_device", [False, True])
def test_a_prompt_of_parts_is_restored(blocks, has_device):
    fake = Fake(unified=True, **SIZES)
    with Chained(CacheMemory(), fake, has_device=has_device) as h:
        assert set(results(h, [insert(h, one) for one in blocks])) == {RESULT_DONE}
        assert h.stats()["cache_entries"] == len(blocks)
        assert fake.n_locked == (len(blocks) if has_device else 0)
        assert h.ask(answered(PROMPT) + b"more") == len(answered(PROMPT))
    del h  # the engine's memory is freed with it
    gc.collect()
    assert fake.n_locked == 0


def test_one_slot_has_parts_without_a_unified_cache(blocks):
    options = {"n_slots": 1, "n_cells": 0}
    with Chained(CacheMemory(), Fake(unified=True, **SIZES), **options) as h:
        assert h.core.takes_parts
        assert set(results(h, [insert(h, one) for one in blocks])) == {RESULT_DONE}
        assert h.ask(answered(PROMPT) + b"more") == len(answered(PROMPT))
    with Chained(CacheMemory(), Fake(**SIZES), n_slots=2, n_cells=0) as h:
        assert not h.core.takes_parts


def test_the_first_blocks_are_used_if_the_others_do_not_come(blocks):
    with Chained(CacheMemory()) as h:
        assert set(results(h, [insert(h, one) for one in blocks[:3]])) == {RESULT_DONE}
        assert h.ask(answered(PROMPT) + b"more") == 3 * BLOCK


def test_a_part_without_the_one_before_it_is_refused(blocks):
    with Chained(CacheMemory()) as h:
        assert results(h, [insert(h, blocks[1])]) == [RESULT_FAILED]
        assert results(h, [insert(h, blocks[0], owner=1), insert(h, blocks[1], owner=2)]) == [
            RESULT_DONE,
            RESULT_FAILED,
        ]
        set_one, set_two = (1, 0, 0), (2, 0, 0)
        actions = [insert(h, blocks[0], adapters=set_one), insert(h, blocks[1], adapters=set_two)]
        assert results(h, actions) == [RESULT_DONE, RESULT_FAILED]
        assert h.stats()["cache_entries"] == 2
        for wrong in (-1, blocks[1].end, blocks[1].end + 1):
            assert results(h, [insert(h, blocks[1]._replace(begin=wrong))]) == [RESULT_FAILED]


def test_what_the_cache_has_already_is_not_inserted_again(blocks):
    with Chained(CacheMemory()) as h:
        for _ in range(2):
            assert set(results(h, [insert(h, one) for one in blocks])) == {RESULT_DONE}
            assert h.stats()["cache_entries"] == len(blocks)
    with Chained(CacheMemory()) as h:
        h.keep(PROMPT)  # parts of 512 tokens
        n_before = h.stats()["cache_entries"]
        assert set(results(h, [insert(h, one) for one in blocks])) == {RESULT_DONE}
        assert n_before < h.stats()["cache_entries"] <= n_before + len(blocks) // 2
        assert h.ask(answered(PROMPT) + b"more") == len(answered(PROMPT))


def test_a_blob_that_is_used_again_has_other_bytes(blocks):
    """Also if the engine had what the blob has, and did not need the copy that another thread had made of it."""
    other = text(2, N)
    with Chained(CacheMemory()) as h:
        blob = Blob(max(len(one.data) for one in blocks))
        for one, two in zip(blocks, blocks_of(other), strict=True):
            assert len(one.data) == len(two.data)
            for block in (one, one, two):
                assert h.done(insert(h, block, blob)).result == RESULT_DONE
        assert h.stats()["cache_entries"] == 2 * len(blocks)
        for prompt in (PROMPT, other):
            assert h.ask(answered(prompt) + b"more") == len(answered(prompt))


def test_parts_that_do_not_fit_are_refused_and_the_others_stay(blocks):
    n_bytes = sum(-(-len(one.data) // 4096) * 4096 for one in blocks[:3])
    with Chained(CacheMemory(), cache_bytes=n_bytes) as h:
        done = results(h, [insert(h, one) for one in blocks])
        assert done[:3] == [RESULT_DONE] * 3
        assert set(done[3:]) <= {RESULT_NO_ROOM, RESULT_FAILED}
        assert h.stats()["cache_bytes"] <= n_bytes
        assert h.ask(answered(PROMPT) + b"more") == 3 * BLOCK


@pytest.mark.parametrize("has_device", [False, True])
def test_parts_take_the_place_of_what_is_worth_less(blocks, has_device):
    """The copies that other threads have made stay, although there is never room for anything new."""
    n_bytes = sum(-(-len(one.data) // 4096) * 4096 for one in blocks)
    with Chained(CacheMemory(), cache_bytes=n_bytes, has_device=has_device) as h:
        for seed in range(4):
            for one in blocks_of(text(100 + seed, N)):
                assert h.done(insert(h, one)).result == RESULT_DONE
        assert set(results(h, [insert(h, one) for one in blocks])) == {RESULT_DONE}
        assert h.ask(answered(PROMPT) + b"more") == len(answered(PROMPT))
        assert h.stats()["cache_bytes"] <= n_bytes


@pytest.mark.parametrize("order", ["prompt by prompt", "part by part", "first parts last"])
def test_more_parts_at_once_than_the_engine_copies_at_once(order):
    """And the next engine has all of them, because each is newer than the one before it."""
    front, prompts = CacheMemory(), [text(300 + seed, N) for seed in range(7)]
    parts = [(i, k, one) for i, prompt in enumerate(prompts) for k, one in enumerate(blocks_of(prompt))]
    if order != "prompt by prompt":
        parts.sort(key=lambda part: part[1])
    with Chained(front) as h:
        actions = [insert(h, one) for _, _, one in parts]
        if order == "first parts last":  # of a prompt that shares its beginning with another
            again = [insert(h, one) for _, k, one in parts if k == 0]
            assert set(results(h, again)) == {RESULT_DONE}
        assert set(results(h, actions)) == {RESULT_DONE}
        n_entries = h.stats()["cache_entries"]
        until(lambda: len(front.entries()) == len(prompts))
    with Chained(front) as h:
        assert h.n_adopted == n_entries
        for prompt in prompts:
            assert h.ask(answered(prompt) + b"more") == len(answered(prompt))


def test_what_does_not_fit_leaves_no_memory(blocks):
    front, limit = CacheMemory(), 200_000
    prompts = [blocks_of(text(200 + seed, N)) for seed in range(4)]
    with Chained(front, cache_bytes=limit) as h:
        n_first = 0
        for _ in range(8):
            for prompt in prompts:
                results(h, [insert(h, one) for one in prompt])
            n_first = n_first or front.n_bytes
        assert h.stats()["cache_bytes"] <= limit
        until(lambda: front.n_bytes <= n_first + limit)


@pytest.mark.parametrize("seed", range(4))
def test_while_streams_save_and_evict(blocks, seed):
    chance = random.Random(seed)
    sizes = SIZES | {"n_cells": 8192}
    fake = Fake(unified=True, decode_us=100, state_us=1000, **sizes)
    limit = chance.choice([200_000, 400_000, 1 << 30])
    options = {"n_slots": 3, "cache_bytes": limit, "has_device": chance.random() < 0.5}
    with Chained(CacheMemory(), fake, **options, **sizes) as h:
        for _ in range(6):
            tasks = {}
            for _ in range(3):
                prompt = text(chance.randrange(5, 9), chance.randrange(300, 1500))
                tasks[h.submit(prompt, n_predict=4)] = prompt
            actions = [insert(h, one) for one in blocks]
            if chance.random() < 0.3:
                h.port.abort(chance.choice(actions))
            prompt = answered(PROMPT) + text(chance.randrange(100), 50)
            tasks[h.submit(prompt, n_predict=4)] = prompt
            results(h, actions)
            h.wait(*tasks)
            for task, asked in tasks.items():
                assert h.text(task) == bytes((asked[-1] + 1 + k) % 256 for k in range(4))
            assert h.core.check_integrity() == 0
            assert h.stats()["cache_bytes"] <= limit
    del h
    gc.collect()
    assert fake.n_locked == 0
