"""Prompts that outlive their engine: what the next engine takes over from the cache memory, what it refuses, and what
the front may do with it meanwhile. The fake counts a state that is restored to other tokens than its own as a bad
call."""

from __future__ import annotations

import os
import random

import pytest
from support.states.adopting_engine import MANY, Engine, left, until

from llamad.engine.testing.fake import Fake
from llamad.protocol.blobs import Blob
from llamad.protocol.cache_memory import CacheMemory, Segment, checksum
from llamad.protocol.messages import ACTION_INSERT, RESULT_DONE, RESULT_NO_ROOM

DATA_AT = 2 << 20  # where the first entry of a new memory lies
TABLE_AT, ROW_BYTES, ENGINE_READERS_AT = 4096, 128, 84
OWN, WRITTEN, LEAVING = 1, 2, 4
WHOLE = {
    "n_slots": 1,
    "can_share": False,
    "n_checkpoints": 32,
    "checkpoint_min_step": 8192,
    "checkpoint_bytes": MANY,
    "cache_bytes": MANY,
}


def text(seed: int, n: int = 200) -> bytes:
    return bytes(33 + (i * i + 7 * seed + i // (seed + 1)) % 90 for i in range(n))


A, B, C = text(1), text(2), text(3)


@pytest.mark.parametrize("n_cells", [0, 1024])
def test_the_next_engine_goes_on(n_cells):
    front = CacheMemory()
    left(front, A, n_cells=n_cells)
    assert [entry.n_tokens for entry in front.entries()] == [204]
    with Engine(front, n_cells=n_cells) as two:
        assert two.n_adopted == 1
        assert two.ask(A + B[:50]) == 201  # the answer was another
        assert two.n_bad == 0


def test_a_turn_is_saved_while_the_engine_is_idle():
    front = CacheMemory()
    with Engine(front) as one:
        one.ask(A)
        until(lambda: len(front.entries()) == 1, 5)
        n_bytes = front.n_bytes
        answer = bytes(A[-1] + k for k in (1, 2, 3, 4))
        one.ask(A + answer + B[:20])
        until(lambda: [entry.n_tokens for entry in front.entries()] == [228], 5)
        assert front.n_bytes <= n_bytes + 8192  # it has grown in its place


@pytest.mark.parametrize("kind", ["cut", "whole"])
def test_a_turn_is_saved_while_its_neighbour_writes(kind):
    front = CacheMemory()
    with Engine(front, Fake(decode_us=8000, can_cut=kind == "cut"), can_share=kind == "cut") as one:
        neighbour = one.submit(B[:20], n_predict=480)
        one.wait_first(neighbour)
        one.ask(A)
        until(lambda: front.entries() != [])
        assert one.end(neighbour) is None
        one.port.abort(neighbour)


def test_a_turn_that_takes_too_long_to_save_waits_until_its_neighbour_has_ended():
    front = CacheMemory()
    with Engine(front, Fake(decode_us=8000, state_us=200_000)) as one:
        one.ask(A)
        until(lambda: len(front.entries()) == 1)  # so its time is known
        neighbour = one.submit(B[:20], n_predict=300)
        one.ask(C)
        one.wait(neighbour)
        assert one.stats()["cache_saves"] == 1
        until(lambda: len(front.entries()) == 3)


def test_a_memory_that_cannot_be_cut_has_its_checkpoints():
    front = CacheMemory()
    with Engine(front, Fake(can_cut=False), **WHOLE) as one:
        one.ask(A)
        until(lambda: len(front.entries()) == 1, 5)
    with Engine(front, Fake(can_cut=False), **WHOLE) as two:
        assert two.n_adopted == 2  # the cells, and the end of the state
        assert two.ask(A) == 201 - 4
        assert two.stats()["checkpoint_used"] == 1


@pytest.mark.parametrize("place", [4, 100, 2000])
def test_damaged_bytes_are_found(place):
    front = CacheMemory()
    left(front, A)
    byte = os.pread(front.fd, 1, DATA_AT + place)
    os.pwrite(front.fd, bytes([byte[0] ^ 4]), DATA_AT + place)
    with Engine(front) as two:
        assert two.n_adopted == 1
        assert two.ask(A) == 0
        until(lambda: two.n_bad == 1)


def test_a_damaged_checkpoint_is_found():
    front = CacheMemory()
    left(front, A, fake=Fake(can_cut=False), **WHOLE)
    os.pwrite(front.fd, b"\xff" * 64, DATA_AT + 200)  # the checkpoint was made first
    with Engine(front, Fake(can_cut=False), **WHOLE) as two:
        assert two.n_adopted == 2
        assert two.ask(A) == 0
        until(lambda: two.n_bad == 1)


def test_another_model_takes_over_nothing():
    front = CacheMemory()
    left(front, A)
    with Engine(front, mark=b"\1" * 32) as two:
        assert (two.n_adopted, front.entries()) == (0, [])
        assert front.n_bytes < DATA_AT
        assert two.ask(A) == 0
    assert front.fingerprint == b"\1" * 32


def test_a_smaller_context_drops_what_is_too_long():
    front = CacheMemory()
    left(front, A, B[:100])
    with Engine(front, n_ctx=128) as two:
        assert two.n_adopted == 1
        assert two.ask(B[:100]) == 100


def test_a_smaller_share_drops_the_longest_unused():
    front = CacheMemory()
    left(front, A, B, C, n_slots=3)
    n_each = front.entries()[0].n_bytes
    with Engine(front, cache_bytes=2 * (n_each // 4096 + 1) * 4096) as two:
        assert two.ask(C) > 190
        assert two.ask(B) > 190
        assert two.ask(A) < 64


def test_owners_do_not_share():
    front = CacheMemory()
    with Engine(front) as one:
        one.ask(A, owner=7)
    assert [entry.owner for entry in front.entries()] == [7]
    with Engine(front) as two:
        assert two.ask(A, owner=8) == 0
    with Engine(front) as three:
        assert three.ask(A, owner=7) == 200


def pinned_part(front: CacheMemory, id: int) -> Segment:
    """Pin a prompt that is one entry."""
    segments = front.pin(id)
    assert segments is not None
    (segment,) = segments
    return segment


def test_what_the_front_has_pinned_stays():
    front = CacheMemory()
    left(front, A, B)
    first, second = sorted(front.entries(), key=lambda entry: entry.used)
    pinned = pinned_part(front, first.id)
    assert front.shrink(0) == first.n_bytes + -first.n_bytes % 4096
    assert [entry.id for entry in front.entries()] == [first.id]
    assert front.pin(second.id) is None
    assert bytes(pinned.data[:4]) == b"SES1"
    with Engine(front, mark=b"\1" * 32) as two:  # which drops everything
        assert front.entries() == []
        assert checksum(pinned.data) == first.checksum == pinned.checksum
        front.unpin(first.id)
        two.ask(C)
    assert [entry.n_tokens for entry in front.entries()] == [204]


def test_pins_of_a_running_engine_are_respected():
    front = CacheMemory()
    with Engine(front, n_slots=1) as one:
        one.ask(A)
        until(lambda: len(front.entries()) == 1)
        (entry,) = front.entries()
        pinned = pinned_part(front, entry.id)
        one.ask(A + bytes(A[-1] + k for k in (1, 2, 3, 4)) + B[:50])
        until(lambda: [one.id for one in front.entries()] not in ([], [entry.id]))
        assert checksum(pinned.data) == entry.checksum
        front.unpin(entry.id)


def killed_while_reading(front: CacheMemory, row: int) -> None:
    """Mark the row as an engine leaves it that is killed while one of its threads reads it."""
    os.pwrite(front.fd, b"\1", TABLE_AT + row * ROW_BYTES + ENGINE_READERS_AT)


def test_readers_end_with_their_engine():
    front = CacheMemory()
    left(front, A)
    killed_while_reading(front, 0)
    with Engine(front, mark=b"\1" * 32):  # which drops everything
        assert (front.entries(), front.n_bytes < DATA_AT) == ([], True)
    left(front, A)
    killed_while_reading(front, 0)
    assert front.shrink(0) == 0


@pytest.mark.parametrize("state", [OWN, WRITTEN, LEAVING])
def test_what_is_half_written_is_dropped_first(state):
    front = CacheMemory()
    left(front, A, B)
    first, second = sorted(front.entries(), key=lambda entry: entry.used)
    row = next(i for i in range(2) if os.pread(front.fd, 8, TABLE_AT + i * ROW_BYTES + 16)[0] == second.id)
    os.pwrite(front.fd, bytes([state]), TABLE_AT + row * ROW_BYTES)
    os.pwrite(front.fd, bytes(8), TABLE_AT + row * ROW_BYTES + 48)  # no bytes of it are valid yet
    n = first.n_bytes + -first.n_bytes % 4096
    assert front.shrink(n) == n
    assert [entry.id for entry in front.entries()] == [first.id]
    until(lambda: front.n_bytes < DATA_AT + n)


def test_a_state_is_inserted():
    front, other = CacheMemory(), CacheMemory()
    left(front, A)
    (entry,) = front.entries()
    pinned = pinned_part(front, entry.id)
    blob = Blob(entry.n_bytes)
    blob.size = entry.n_bytes
    memoryview(blob)[:] = pinned.data
    with Engine(other) as two:
        action = two.act(
            ACTION_INSERT, 0, blob, n_tokens=entry.n_tokens, n_bytes=entry.n_bytes, owner=7, session=3
        )
        assert two.done(action).result == RESULT_DONE
        until(lambda: [(one.owner, one.session) for one in other.entries()] == [(7, 3)])
        assert two.ask(A, owner=8) == 0
        assert two.ask(A, owner=7) == 200
    with Engine(CacheMemory(), cache_bytes=4096) as three:
        action = three.act(ACTION_INSERT, 0, blob, n_tokens=entry.n_tokens, n_bytes=entry.n_bytes)
        assert three.done(action).result == RESULT_NO_ROOM


def test_a_blob_is_freed_while_its_state_is_copied():
    """Its client has left: nobody but the thread that copies keeps the blob."""
    size = 32 << 20
    with Engine(CacheMemory(), cache_bytes=2 * size) as h:
        for _ in range(20):
            blob = Blob(size)
            action = h.act(ACTION_INSERT, 0, blob, n_tokens=200, n_bytes=size)
            h.collect()
            h.port.abort(action)
            del blob
            h.done(action)
        assert h.ask(A) == 0


def test_the_state_of_a_suspended_task_is_not_adopted():
    """No engine knows the task that it was held for. The file is copied while the engine runs, as if it had been killed
    then."""
    front, sizes = CacheMemory(), {"n_ctx": 256, "n_cells": 256}
    with Engine(front, Fake(**sizes, unified=True, decode_us=100), **sizes, n_slots=4) as one:
        tasks = [one.submit(bytes([97 + i]) * 70, n_predict=150) for i in range(4)]
        one.until(lambda: one.port.stats()["n_suspended"] > 0)
        one.catch()  # it is blocked then
        copy = copied(front)
        one.fake.block(False)
        one.wait(*tasks)
    with Engine(copy, Fake(**sizes, unified=True), **sizes) as two:
        assert two.n_adopted == 0
        assert copy.n_bytes < DATA_AT


def copied(front: CacheMemory) -> CacheMemory:
    copy = CacheMemory()
    at = 0
    while True:
        try:
            at = os.lseek(front.fd, at, os.SEEK_DATA)
        except OSError:
            return copy
        os.pwrite(copy.fd, os.pread(front.fd, 4096, at), at)
        at += 4096


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_table_does_no_harm(seed):
    rng = random.Random(seed)
    front = CacheMemory()
    left(front, A, B)
    for _ in range(rng.randint(1, 20)):
        place = TABLE_AT + rng.randrange(3 * 128)
        os.pwrite(front.fd, rng.choice([b"\0", b"\xff", bytes([rng.randrange(256)]), b"\x03"]), place)
    if rng.random() < 0.3:
        os.pwrite(front.fd, rng.randbytes(8), 16)  # where the next range begins
    front.entries()
    with Engine(front) as two:
        two.ask(A)
        two.ask(B)
        two.ask(C)
