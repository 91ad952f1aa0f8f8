"""The limit of the prompt cache when not everything fits: what fits stays, and nothing is done again and again."""

import os
import threading
import time

import pytest
from support.states.adopting_engine import Chained, Cut, answered, until
from support.states.inserted_parts import blocks_of, insert, text

from llamad.engine.testing.fake import Fake
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.messages import ACTION_ERASE, RESULT_DONE

LAST_ID = 24  # where the memory has the number of entries that were ever begun (protocol/cache_memory.h)


@pytest.mark.parametrize("kind", ["parts", "parts on a device", "streams"])
def test_idle_prefixes_that_do_not_all_fit_are_saved_once(kind):
    """Each one that was saved pushed another one out, which was then saved again, and so on: an idle engine took a
    whole core for ever."""
    front = CacheMemory()
    if kind == "streams":
        engine: Chained = Cut(front, "streams", n_slots=4, cache_bytes=60_000)
    else:
        engine = Chained(front, n_slots=4, cache_bytes=40_000, has_device=kind != "parts")
    with engine as one:
        for seed in (1, 2, 3):
            one.ask(text(seed, 700))
        until(lambda: one.stats()["cache_saves"] > 2)
        time.sleep(2.5)
        n_saves = one.stats()["cache_saves"]
        time.sleep(0.5)
        assert one.stats()["cache_saves"] == n_saves <= 12


def test_pages_for_a_long_prompt_are_asked_for_once():
    """The table of prepared pages has 16 places. Pages that were ready were given back and asked for again, for more
    than a second in which no stream went on."""
    sizes = {"n_ctx": 40_000, "n_cells": 80_000, "n_batch": 512}
    fake = Fake(unified=True, n_seqs=4, **sizes)
    front = CacheMemory()
    with Chained(front, fake, n_slots=3, has_device=True, **sizes) as one:
        threads = [threading.Thread(target=one.core.prepare_pages, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for seed in (1, 2, 3):
            one.wait(one.submit(text(seed, 12_000), n_predict=1))
        n_rows = int.from_bytes(os.pread(front.fd, 8, LAST_ID), "little")
        assert 16 < n_rows < 200
        one.core.end_tending()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("kind", ["streams", "window", "hybrid"])
def test_a_state_whose_parts_do_not_fit_beside_the_buffer_is_saved_whole(kind):
    """It was not saved at all, and each try had dropped all other prompts before it failed."""
    front = CacheMemory()
    with Cut(front, kind, n_slots=3) as one:
        n_state = one.layout.piece_bytes(3000)
        for seed in (1, 2):
            one.keep(text(seed, 300))
    limit = int(n_state * 2.5)
    with Cut(front, kind, n_slots=1, cache_bytes=limit) as two:
        two.keep(text(9, 2996))
        n_tokens = sorted(entry.n_tokens for entry in front.entries())
    assert (n_tokens[0], n_tokens[-1]) == (304, 3000)


def test_prompts_that_are_inserted_at_once_do_not_push_each_other_out():
    """In a full cache the first part of a prompt was worth least, until another one was behind it."""
    prompts = [text(21, 1500), text(22, 1500)]
    with Chained(CacheMemory(), n_slots=2, cache_bytes=400_000) as one:
        for seed in range(3, 12):
            one.ask(text(seed, 3000))
        for slot in (0, 1):  # so that nothing is saved in between
            one.done(one.act(ACTION_ERASE, slot))
        assert one.stats()["cache_bytes"] > 350_000
        for parts in zip(*(blocks_of(prompt) for prompt in prompts), strict=True):
            for part in parts:
                assert one.done(insert(one, part)).result == RESULT_DONE
        for prompt in prompts:
            assert one.ask(answered(prompt) + b"more") == 1504


def test_a_stem_counts_once_while_two_forks_come_back():
    """What both forks need counted twice, so that there seemed to be no room for anything else."""
    sizes = {"n_ctx": 4096, "n_cells": 16384, "n_batch": 512}
    stem = text(1, 3600)
    forks = [stem + text(seed, 100) for seed in (2, 3)]
    front = CacheMemory()
    with Chained(front, Fake(unified=True, n_seqs=5, **sizes), n_slots=4, **sizes) as one:
        for fork in forks:
            one.keep(fork)
        n_bytes = one.stats()["cache_bytes"]
    slow = Fake(unified=True, n_seqs=5, decode_us=500, state_us=60_000, **sizes)
    with Chained(front, slow, n_slots=4, cache_bytes=n_bytes * 13 // 10, **sizes) as two:
        neighbour = two.submit(b"neighbour", n_predict=100_000, n_keep=-1, id_slot=3)
        two.wait_first(neighbour)
        tasks = [two.submit(answered(fork) + b"more", n_predict=4) for fork in forks]
        until(lambda: two.stats()["cache_hits"] == len(forks))
        assert two.done(insert(two, blocks_of(text(21, 600))[0])).result == RESULT_DONE
        for task in tasks:
            two.wait(task)
            assert two.n_cached(task) == 3704
        two.port.abort(neighbour)
        two.wait(neighbour)
