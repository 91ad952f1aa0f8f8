"""Long prompts that leave a slot or return to one while other slots run: their states are copied in parts, and between
two parts the others go on."""

from __future__ import annotations

import os
import random
import struct

import pytest
from support.states.adopting_engine import MANY, SIZES, Chained, answered, until

from llamad.client.events import Admitted, Failed
from llamad.engine.testing.fake import Fake
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.messages import EVENT_ADMITTED, EVENT_TEXT, FAILURE_ABORTED

LONG = 3900  # tokens: eight parts
SLOW = {"decode_us": 500, "state_us": 25_000}  # one part takes all the time that a turn has for states
TABLE_AT, ROW_BYTES, PLACE_AT = 4096, 128, 24


def text(seed: int, n: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(33, 120) for _ in range(n))


def slow(**options) -> Fake:
    return Fake(unified=True, **(SLOW | SIZES | options))


def stream(h: Chained, slot: int = 1) -> int:
    """A task that writes until it is aborted."""
    task = h.submit(b"neighbour", n_predict=100_000, n_keep=-1, id_slot=slot)
    h.wait_first(task)
    return task


def n_written_until_admitted(h: Chained, neighbour: int, task: int, n_before: int) -> int:
    """How many texts the neighbour wrote from then on until the task was admitted."""
    at = h.order.index((EVENT_ADMITTED, task))
    return h.order[n_before:at].count((EVENT_TEXT, neighbour))


def end(h: Chained, neighbour: int) -> None:
    h.port.abort(neighbour)
    h.wait(neighbour)


def test_a_stream_goes_on_while_a_prompt_returns():
    with Chained(CacheMemory(), slow()) as h:
        prompt = text(1, LONG)
        h.keep(prompt, id_slot=0)
        h.ask(text(2, 100), id_slot=0)
        neighbour = stream(h)
        h.collect()
        n_before = len(h.order)
        again = h.submit(answered(prompt) + b"more", n_predict=4, id_slot=0)
        h.wait(again)
        assert h.n_cached(again) == len(answered(prompt))
        assert h.text(again) == b"fghi"
        assert n_written_until_admitted(h, neighbour, again, n_before) >= 7
        stats = h.stats()
        assert stats["cache_restored"] == len(answered(prompt))
        assert stats["cache_us_max"] < 4 * SLOW["state_us"]
        end(h, neighbour)


def test_a_stream_goes_on_while_a_prompt_is_given_up():
    """Nothing of it is saved before, because it has just ended."""
    front = CacheMemory()
    with Chained(front, slow()) as h:
        neighbour = stream(h)
        prompt = text(1, LONG)
        h.ask(prompt, id_slot=0)
        h.collect()
        n_before = len(h.order)
        other = h.submit(text(2, 700), n_predict=4, id_slot=0)
        h.wait(other)
        assert n_written_until_admitted(h, neighbour, other, n_before) >= 6
        assert len(answered(prompt)) in [entry.n_tokens for entry in front.entries()]
        end(h, neighbour)


def test_a_stream_goes_on_while_another_slot_makes_room():
    """The prompt of an idle slot is saved in parts before its cells are taken, however long that takes."""
    front = CacheMemory()
    with Chained(front, slow(n_seqs=5), n_slots=4) as h:
        neighbour = stream(h, 0)
        prompts = [text(1 + i, 2400) for i in range(2)]
        for i, prompt in enumerate(prompts):
            h.ask(prompt, id_slot=1 + i)
        h.collect()
        n_before = len(h.order)
        other = h.submit(text(5, LONG), n_predict=4, id_slot=3)
        h.wait(other)
        assert n_written_until_admitted(h, neighbour, other, n_before) >= 3
        evicted = [i for i in range(2) if not h.fake.held(1 + i)]
        assert evicted
        saved = [entry.n_tokens for entry in front.entries()]
        assert saved.count(len(answered(prompts[0]))) == len(evicted)
        assert h.stats()["cache_us_max"] < 4 * SLOW["state_us"]
        end(h, neighbour)


def test_a_whole_state_is_saved_before_another_is_restored():
    """Streams of their own have no parts: of two states, one is copied between two steps."""
    fake = Fake(decode_us=500, state_us=25_000, n_ctx=1024, n_batch=512)
    with Chained(CacheMemory(), fake, n_ctx=1024, n_cells=0) as h:
        first, second = text(1, 700), text(2, 700)
        h.keep(first, id_slot=0)
        neighbour = stream(h)
        h.ask(second, id_slot=0)
        h.collect()
        n_before = len(h.order)
        again = h.submit(answered(first) + b"more", n_predict=4, id_slot=0)
        h.wait(again)
        assert h.n_cached(again) == len(answered(first))
        assert n_written_until_admitted(h, neighbour, again, n_before) >= 1
        end(h, neighbour)


def test_what_the_slot_has_of_it_stays():
    stem = text(3, 1600)
    one, two = stem + text(4, 1000), stem + text(5, 1000)
    with Chained(CacheMemory(), slow()) as h:
        h.keep(one, id_slot=0)
        h.keep(two, id_slot=0)
        neighbour = stream(h)
        n_restored = h.stats()["cache_restored"]
        again = h.submit(answered(one) + b"more", n_predict=4, id_slot=0)
        h.wait(again)
        assert h.n_cached(again) == len(answered(one))
        assert h.stats()["cache_restored"] - n_restored == len(answered(one)) - 1536
        end(h, neighbour)


def test_a_task_that_leaves_meanwhile_leaves_what_it_has():
    with Chained(CacheMemory(), slow()) as h:
        prompt = text(1, LONG)
        h.keep(prompt, id_slot=0)
        h.ask(text(2, 100), id_slot=0)
        neighbour = stream(h)
        left = h.submit(answered(prompt) + b"more", n_predict=4, id_slot=0)
        h.until(lambda: h.stats()["cache_restored"] >= 1000)
        h.port.abort(left)
        h.wait(left)
        assert h.end(left).failure == FAILURE_ABORTED
        assert not h.told(left, Admitted)
        end(h, neighbour)
        assert 1000 < len(h.core.slot_tokens(0)) < LONG
        assert h.ask(answered(prompt) + b"more", id_slot=0) == len(answered(prompt))


def test_a_damaged_part_and_those_behind_it_are_computed():
    front, prompt = CacheMemory(), text(6, LONG)
    with Chained(front, slow(state_us=0)) as one:
        one.keep(prompt)
    for row in range(100):
        state, _, _, n = struct.unpack("<IiIi", os.pread(front.fd, 16, TABLE_AT + row * ROW_BYTES))
        if state and n == 2048:
            (at,) = struct.unpack("<Q", os.pread(front.fd, 8, TABLE_AT + row * ROW_BYTES + PLACE_AT))
            os.pwrite(front.fd, b"\xff\xff", at + 8 + 4 * n + 3000)
    with Chained(front, slow()) as two:
        neighbour = stream(two)
        again = two.submit(answered(prompt) + b"more", n_predict=4, id_slot=0)
        two.wait(again)
        assert two.n_cached(again) in (1536, 1537)
        assert two.text(again) == b"fghi"
        until(lambda: two.n_bad == 1)
        end(two, neighbour)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_and_goes_meanwhile(seed):
    """Tasks that fork, arrive together, leave and outgrow the cells; every token is computed from those before it."""
    chance = random.Random(seed)
    front = CacheMemory()
    known = [text(100 + i, chance.randrange(600, 2500)) for i in range(4)]
    for _ in range(2):
        sizes = SIZES | {"n_cells": chance.choice([4096, 8192])}
        fake = Fake(unified=True, decode_us=300, state_us=chance.choice([0, 3000, 25_000]), **sizes)
        cache_bytes = chance.choice([MANY, 300_000])
        with Chained(front, fake, n_slots=3, cache_bytes=cache_bytes, **sizes) as h:
            tasks: dict[int, bytes] = {}
            for _ in range(20):
                prompt = chance.choice(known)
                cut = chance.choice([len(prompt), chance.randrange(1, len(prompt))])
                prompt = prompt[:cut] + text(chance.randrange(1000), chance.randrange(1, 500))
                if len(prompt) > 3300:
                    continue
                n_predict = chance.choice([4, 4, 100])
                tasks[h.submit(prompt, n_predict=n_predict)] = prompt
                if n_predict == 4:
                    known.append(answered(prompt))
                if chance.random() < 0.2:
                    h.port.abort(chance.choice(list(tasks)))
                if chance.random() < 0.5:
                    h.wait(chance.choice(list(tasks)))
            h.wait(*tasks)
            for task, prompt in tasks.items():
                if not isinstance(h.end(task), Failed):
                    n = len(h.text(task))
                    assert h.text(task) == bytes((prompt[-1] + 1 + k) % 256 for k in range(n))
