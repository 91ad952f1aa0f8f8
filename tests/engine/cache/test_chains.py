"""Long prompts in the cache memory: a conversation that grew adds what is new, and prompts with the same beginning
share its entries. The fake counts a token that is computed from other cells than those of the tokens before it."""

from __future__ import annotations

import os
import random
import struct
import time

import pytest
from support.states.adopting_engine import MANY, SIZES, Chained, Engine, answered, until

from llamad.engine.testing.fake import Fake
from llamad.protocol.cache_memory import CacheMemory, EntryInfo, checksum

SEGMENT = 512  # tokens of an entry at most
TABLE_AT, ROW_BYTES = 4096, 128
# Offsets in a row of the table.
STATE_AT, ID_AT, PLACE_AT, CHECKSUM_AT = 0, 16, 24, 104
OWN = 1


def text(seed: int, n: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(33, 120) for _ in range(n))


def ends(front: CacheMemory, n_tokens: int) -> list[int]:
    """Where the entries of the prompt with so many tokens end."""
    (entry,) = [one for one in front.entries() if one.n_tokens == n_tokens]
    segments = front.pin(entry.id)
    front.unpin(entry.id)
    return [segment.n_tokens for segment in segments]


def row_of(front: CacheMemory, n_tokens: int) -> int:
    """The place in the table of the entry that ends with this token."""
    for row in range(100):
        state, _, _, n = struct.unpack("<IiIi", os.pread(front.fd, 16, TABLE_AT + row * ROW_BYTES))
        if state and n == n_tokens:
            return TABLE_AT + row * ROW_BYTES
    raise AssertionError("there is no such entry")


def n_bytes(front: CacheMemory) -> int:
    """The bytes of all entries."""
    rows = [os.pread(front.fd, ROW_BYTES, TABLE_AT + i * ROW_BYTES) for i in range(200)]
    return sum(struct.unpack_from("<Q", row, 48)[0] for row in rows if row[0])


def test_a_turn_adds_only_what_is_new():
    front, sizes = CacheMemory(), []
    turn = text(1, 1100)
    with Chained(front) as one:
        for n_more in (0, 300, 20, 30):
            turn += text(n_more, n_more)
            one.keep(turn)
            turn = answered(turn)
            sizes.append(n_bytes(front))
        # 80 tokens are few: a longer entry takes their place. So does one of 24.
        assert ends(front, len(turn)) == [512, 1024, 1104 + 304, 1104 + 304 + 24 + 34]
        assert one.stats()["cache_entries"] == 4
    per_token = sizes[0] / 1104
    assert sizes[1] - sizes[0] < 500 * per_token
    assert sizes[3] - sizes[1] < 160 * per_token + 4 * 4 * len(turn)


def test_forks_share_their_stem():
    front = CacheMemory()
    stem = text(2, 2000)
    with Chained(front, n_slots=1) as one:
        one.keep(stem + text(3, 400))
        n_one = n_bytes(front)
        assert one.keep(stem + text(4, 450)) >= 1 + len(stem)
        assert n_bytes(front) < n_one * 1.6
        assert ends(front, 2454) == [512, 1024, 1536, 2048, 2454]
        assert one.stats()["cache_entries"] == 5 + 2  # the fork has its own after 1,536 tokens
        assert one.keep(answered(stem + text(3, 400)) + b"more") == 2404


def test_a_prompt_comes_back_from_its_entries():
    with Chained(CacheMemory(), n_slots=1) as one:
        first, other = text(5, 1700), text(6, 1300)
        one.keep(first)
        one.keep(other)
        assert one.ask(answered(first) + b"and on") == len(answered(first))
        assert one.ask(other[:700] + b"!" * 50) == 701  # a part
        assert one.stats()["cache_hits"] == 2


def test_what_belongs_to_nobody_is_found_by_all_keys():
    stem = text(20, 1300)
    with Chained(CacheMemory(), n_slots=1) as one:
        one.keep(stem)
        one.keep(stem + text(21, 700), owner=7)
        assert one.ask(stem + text(22, 300), owner=8) >= 1 + len(stem)


def test_nothing_is_dropped_for_what_does_not_fit_beside_a_prompt_that_returns():
    returning, other, last = text(23, 1500), text(24, 100), text(25, 620)
    front = CacheMemory()
    with Chained(front, n_slots=1) as one:
        one.keep(returning)
        one.keep(other)
        n_two = n_bytes(front)
    front = CacheMemory()
    with Chained(front, n_slots=1, cache_bytes=n_two + 16384) as one:
        one.keep(returning)
        one.keep(other)
        one.ask(last)
        assert one.ask(returning + b"more") == 1501  # its parts, and those of `last`, would be too much
        assert len(answered(other)) in [entry.n_tokens for entry in front.entries()]
        assert one.stats()["cache_dropped"] == 0


def test_the_next_engine_has_all_parts():
    front, prompt = CacheMemory(), text(7, 1500)
    with Chained(front) as one:
        one.keep(prompt)
        one.keep(prompt[:1100] + text(8, 500))
    with Chained(front) as two:
        assert two.n_adopted == 5
        assert two.keep(answered(prompt) + b"more") == len(answered(prompt))
        assert two.ask(prompt[:1100] + text(8, 500)) == 1600
        assert two.n_bad == 0
        assert len(ends(front, len(answered(answered(prompt) + b"more")))) == 4


def test_an_engine_without_a_spare_sequence_joins_the_parts():
    front, prompt = CacheMemory(), text(7, 1500)
    with Chained(front) as one:
        one.keep(prompt)
    with Engine(front, Fake(unified=True, **SIZES), **SIZES) as two:
        assert two.n_adopted == 3
        assert two.ask(prompt) == 1500


@pytest.mark.parametrize("end", [512, 1024, 1504])
def test_damage_costs_the_parts_behind_it(end):
    front, prompt = CacheMemory(), text(9, 1500)
    with Chained(front) as one:
        one.keep(prompt)
    (at,) = struct.unpack("<Q", os.pread(front.fd, 8, row_of(front, end) + PLACE_AT))
    byte = os.pread(front.fd, 1, at + 8 + 4 * end + 3000)
    os.pwrite(front.fd, bytes([byte[0] ^ 4]), at + 8 + 4 * end + 3000)
    with Chained(front) as two:
        assert two.n_adopted == 3
        two.ask(prompt)
        until(lambda: two.n_bad == 1)
        two.ask(text(10, 1000), id_slot=0)
        two.ask(text(11, 1000), id_slot=1)
        two.keep(answered(prompt) + b"more")


@pytest.mark.parametrize(
    ("offset", "value"),
    [
        (8, struct.pack("<i", 90)),  # another token than the entries before it have
        (8 + 4 * 1024 + 16, struct.pack("<i", 3)),  # the position of its first cell
        (8 + 4 * 1024 + 12, struct.pack("<I", 511)),  # the number of cells
    ],
)
def test_a_part_that_does_not_follow_is_not_used(offset, value):
    front, prompt = CacheMemory(), text(12, 1500)
    with Chained(front) as one:
        one.keep(prompt)
    row = row_of(front, 1024)
    at, _, _, n = struct.unpack("<4Q", os.pread(front.fd, 32, row + PLACE_AT))
    os.pwrite(front.fd, value, at + offset)
    os.pwrite(front.fd, struct.pack("<Q", checksum(os.pread(front.fd, n, at))), row + CHECKSUM_AT)
    with Chained(front) as two:
        assert two.ask(prompt) <= SEGMENT
        two.ask(text(10, 1000), id_slot=0)
        two.ask(text(11, 1000), id_slot=1)
        assert two.ask(prompt) <= 1501


@pytest.mark.parametrize("end", [512, 1024, 1504])
def test_what_lacks_a_part_is_dropped(end):
    """As an engine leaves it that ended while it restored this part."""
    front, prompt = CacheMemory(), text(13, 1500)
    with Chained(front) as one:
        one.keep(prompt)
    os.pwrite(front.fd, bytes([OWN]), row_of(front, end) + STATE_AT)
    with Chained(front) as two:
        assert two.n_adopted == {512: 0, 1024: 1, 1504: 2}[end]
        assert two.ask(prompt) == {512: 0, 1024: 512, 1504: 1024}[end]


def test_the_front_drops_the_ends_first():
    front, prompt = CacheMemory(), text(14, 1500)
    with Chained(front) as one:
        one.keep(prompt)
    n = n_bytes(front)
    assert front.shrink(n - 1) < n
    assert [entry.n_tokens for entry in front.entries()] == [1024]
    os.pwrite(front.fd, bytes([OWN]), row_of(front, 512) + STATE_AT)  # nothing can use the rest
    assert (front.shrink(n), front.entries()) == (0, [])


def test_a_pinned_prompt_keeps_all_its_parts():
    front, prompt = CacheMemory(), text(15, 1500)
    with Chained(front) as one:
        one.keep(prompt)
    (entry,) = front.entries()
    segments = front.pin(entry.id)
    assert front.shrink(0) > 0
    with Chained(front, mark=bytes(32)) as two:  # which drops everything
        assert front.entries() == []
        assert [checksum(one.data) for one in segments] == [one.checksum for one in segments]
        front.unpin(entry.id)
        two.keep(text(16, 600))
    assert len(front.entries()) == 1


def test_a_finished_turn_is_saved_while_its_neighbour_writes():
    """It takes at most a hundredth of the time of the neighbour's steps, and one part more."""
    front, prompt = CacheMemory(), text(26, 2000)
    fake = Fake(unified=True, decode_us=2000, state_us=10_000, **SIZES)
    with Chained(front, fake) as one:
        t_begin = time.monotonic()
        neighbour = one.submit(b"neighbour", n_predict=4000)
        one.wait_first(neighbour)
        one.keep(prompt)
        seconds = time.monotonic() - t_begin
        assert one.end(neighbour) is None
        stats = one.stats()
        assert stats["cache_saves"] == 4
        assert stats["cache_us"] - stats["cache_us_max"] <= seconds * 1e6 / 100
        one.port.abort(neighbour)


def test_memory_that_runs_out_costs_the_ends():
    front = CacheMemory()
    with Chained(front, n_slots=1) as one:
        one.keep(text(17, 1000))
        n = n_bytes(front)
    front = CacheMemory()
    with Chained(front, n_slots=1, cache_bytes=2 * n) as one:
        for seed in range(17, 24):
            one.ask(text(seed, 1000))
            one.ask(text(17, 1000))
            assert one.stats()["cache_bytes"] <= 2 * n
        assert one.stats()["cache_dropped"] > 0


@pytest.mark.parametrize("seed", range(4))
def test_conversations_that_fork_and_engines_that_end(seed):
    """Whatever is saved, shared, dropped and adopted, every token is computed from the tokens before it."""
    chance = random.Random(seed)
    front = CacheMemory()
    stems = [text(100 + i, chance.randrange(100, 1500)) for i in range(3)]
    known: list[bytes] = list(stems)
    for _ in range(3):
        with Chained(front, n_slots=2, cache_bytes=chance.choice([MANY, 200_000])) as engine:
            for _ in range(8):
                prompt = chance.choice(known)
                cut = chance.choice([len(prompt), chance.randrange(1, len(prompt))])
                prompt = prompt[:cut] + text(chance.randrange(1000), chance.randrange(1, 600))
                if len(prompt) > 3500:
                    continue
                engine.ask(prompt)
                if chance.random() < 0.2:
                    time.sleep(1.2)  # until idle prompts are saved
                known.append(answered(prompt))
    assert all(isinstance(entry, EntryInfo) and front.pin(entry.id) is not None for entry in front.entries())


def test_some_entries_of_a_prompt_may_be_pinned():
    """The disk's writer copies a few entries at a time. The last one has all tokens, and is always among them."""
    front = CacheMemory()
    with Chained(front) as one:
        one.keep(text(8, 1500))
    (entry,) = front.entries()
    n = entry.n_tokens

    def pinned(*tokens: int) -> list[tuple[int, int]]:
        segments = front.pin(entry.id, *tokens)
        assert segments is not None
        front.unpin(entry.id)
        return [(segment.begin, segment.n_tokens) for segment in segments]

    parts = [(0, SEGMENT), (SEGMENT, 2 * SEGMENT), (2 * SEGMENT, n)]
    assert pinned() == parts
    assert pinned(0, 10) == [parts[0], parts[2]]
    assert pinned(SEGMENT - 1, SEGMENT + 1) == parts
    assert pinned(SEGMENT, 2 * SEGMENT) == parts[1:]
    assert pinned(n, n) == parts[2:]
