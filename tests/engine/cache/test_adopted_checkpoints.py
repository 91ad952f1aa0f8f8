"""Checkpoints that an engine adopts from the one before it, when an entry can use more of them than its list has."""

import os
import struct
from typing import NamedTuple

from support.states.adopting_engine import Cut, answered
from support.states.inserted_parts import text

from llamad.protocol.cache_memory import CacheMemory

# The table of the memory (protocol/cache_memory.h).
ROWS, ROW_BYTES, N_ROWS = 4096, 128, 600
READY, PART, CHECKPOINT = 3, 3, 2
LIST_MAX = 2
MASK = (1 << 64) - 1


class Left(NamedTuple):
    """What an engine has left: entries with their tokens in the order of their rows, and checkpoints."""

    entries: list[tuple[int, ...]]
    checkpoints: list[tuple[int, int, int]]  # the number of tokens, their hash, the row


def left(front: CacheMemory) -> Left:
    entries, checkpoints = [], []
    for row in range(N_ROWS):
        packed = os.pread(front.fd, ROW_BYTES, ROWS + ROW_BYTES * row)
        state, _, kind, n_tokens, _, at = struct.unpack_from("<IiIiQQ", packed)
        if state == READY and kind == CHECKPOINT:
            checkpoints.append((n_tokens, struct.unpack_from("<Q", packed, 112)[0], row))
        elif state == READY and kind != PART:
            entries.append(struct.unpack(f"<{n_tokens}i", os.pread(front.fd, 4 * n_tokens, at + 8)))
    return Left(entries, sorted(checkpoints))


def prefix(hash: int, token: int) -> int:
    hash = (((hash or 0xCBF29CE484222325) ^ (token & 0xFFFFFFFF)) * 0x9E3779B97F4A7C15) & MASK
    return hash ^ (hash >> 32)


def listed(remains: Left) -> tuple[set[int], int]:
    """Return the checkpoints that are in a list in the end, and how many were linked again after all lists had given
    them up."""
    lists: list[list[int]] = []
    n_again, given_up = 0, set()
    for tokens in remains.entries:
        hashes, hash = {}, 0
        for i, token in enumerate(tokens, 1):
            hashes[i] = hash = prefix(hash, token)
        own = [row for n, hash, row in remains.checkpoints if hashes.get(n) == hash]
        lists.append([])
        for row in own:
            n_again += row in given_up
            lists[-1].append(row)
            if len(lists[-1]) > LIST_MAX:
                dropped = lists[-1].pop(0)
                if all(dropped not in one for one in lists):
                    given_up.add(dropped)
    return {row for one in lists for row in one}, n_again


def test_a_checkpoint_that_one_list_gives_up_is_there_for_the_next_entry():
    """It was freed when the first list gave it up, and then the next entry got it."""
    front = CacheMemory()
    conversation = text(1, 150)
    with Cut(front, "hybrid", n_checkpoints=LIST_MAX) as one:
        for turn in range(9):
            one.keep(conversation)
            conversation = answered(conversation) + text(100 + turn, 90)
    remains = left(front)
    expected, n_again = listed(remains)
    assert n_again > 0
    with Cut(front, "hybrid", n_checkpoints=LIST_MAX) as two:
        assert two.stats()["checkpoints"] == len(expected)
        for n in range(160, len(conversation), 60):
            two.ask(conversation[:n] + b"fork")
        assert two.fake.n_wrong == 0
