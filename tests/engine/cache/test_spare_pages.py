"""Pages that another thread prepares while a device computes a prompt, for the states that will be saved."""

from __future__ import annotations

import random
import time

import pytest
from support.states.adopting_engine import MANY, SIZES, Chained, answered, until

from llamad.engine.testing.fake import Fake
from llamad.protocol.cache_memory import CacheMemory

N_PARTS = 7
PART = 512
LONG = N_PARTS * PART + 100


def text(seed: int, n: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(33, 120) for _ in range(n))


def blocked(h: Chained, prompt: bytes) -> int:
    """A task whose prompt the device computes, but does not finish."""
    h.fake.block(True)
    task = h.submit(prompt, n_predict=4)
    h.until(lambda: h.fake.is_waiting)
    return task


def part_bytes(front: CacheMemory) -> int:
    """The pages of the largest part of a prompt that is saved."""
    return max(-(-len(entry_data) // 4096) * 4096 for entry_data in parts(front))


def parts(front: CacheMemory) -> list[bytes]:
    longest = max(front.entries(), key=lambda entry: entry.n_tokens)
    segments = front.pin(longest.id)
    assert segments is not None
    data = [bytes(segment.data) for segment in segments]
    for segment in segments:
        segment.data.release()
    front.unpin(longest.id)
    return data


@pytest.fixture(scope="module")
def n_part() -> int:
    front = CacheMemory()
    with Chained(front) as h:
        h.keep(text(1, LONG))
        return part_bytes(front)


def test_pages_are_prepared_while_a_device_computes_the_prompt(n_part):
    front, prompt = CacheMemory(), text(1, LONG)
    with Chained(front, has_device=True) as h:
        n_before = front.n_bytes
        task = blocked(h, prompt)
        until(lambda: front.n_bytes - n_before >= N_PARTS * n_part)
        assert not front.entries()
        n_prepared = front.n_bytes
        h.fake.block(False)
        h.wait(task)
        until(lambda: len(answered(prompt)) in [entry.n_tokens for entry in front.entries()])
        assert len(parts(front)) == N_PARTS + 1
        assert front.n_bytes <= n_prepared + n_part, (
            "only the last part, which is shorter, needs pages of its own"
        )
        assert h.ask(answered(prompt) + b"more") == len(answered(prompt))


@pytest.mark.parametrize(
    ("options", "n_tokens"),
    [
        ({"has_device": False}, LONG),
        ({"has_device": True}, PART - 100),
        ({"has_device": True, "cache_bytes": 0}, LONG),
    ],
    ids=["cpu", "short", "off"],
)
def test_none_are_prepared(options, n_tokens):
    front = CacheMemory()
    with Chained(front, **options) as h:
        n_before = front.n_bytes
        task = blocked(h, text(1, n_tokens))
        time.sleep(0.2)
        assert front.n_bytes == n_before
        h.fake.block(False)
        h.wait(task)


def test_nothing_is_evicted_for_them(n_part):
    """They take a part of what is left of the limit, and give way to whatever is saved."""
    front = CacheMemory()
    with Chained(front, has_device=True, cache_bytes=N_PARTS * n_part + 2 * n_part) as h:
        first = text(1, LONG)
        h.keep(first)
        h.fake.block(True)
        task = h.submit(text(2, LONG), n_predict=4)
        h.until(lambda: h.fake.is_waiting)
        assert h.stats()["cache_dropped"] == 0
        assert len(answered(first)) in [entry.n_tokens for entry in front.entries()]
        h.fake.block(False)
        h.wait(task)
        until(lambda: h.stats()["cache_dropped"] > 0)
        assert h.stats()["cache_bytes"] <= N_PARTS * n_part + 2 * n_part


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_saved_and_dropped_meanwhile(seed):
    """Prompts of all lengths and a limit that changes: the cache keeps to it, and every answer is right."""
    chance = random.Random(seed)
    front = CacheMemory()
    fake = Fake(unified=True, decode_us=chance.choice([0, 200]), **SIZES)
    with Chained(front, fake, has_device=True, n_slots=3, cache_bytes=chance.choice([MANY, 400_000])) as h:
        known = [text(100 + i, chance.randrange(100, 2500)) for i in range(4)]
        tasks: dict[int, bytes] = {}
        for _ in range(40):
            prompt = chance.choice(known)
            prompt = prompt[: chance.randrange(1, len(prompt))] + text(
                chance.randrange(1000), chance.randrange(1, 900)
            )
            if chance.random() < 0.2:
                h.core.share(0, 0, chance.choice([100_000, 400_000, 4_000_000]))
            tasks[h.submit(prompt, n_predict=4)] = prompt
            known.append(answered(prompt))
            if chance.random() < 0.5:
                h.wait(chance.choice(list(tasks)))
        h.wait(*tasks)
        for task, prompt in tasks.items():
            assert h.text(task) == bytes((prompt[-1] + 1 + k) % 256 for k in range(4))
