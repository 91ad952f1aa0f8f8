"""Parts of a prompt as the disk has them, and the action that inserts one."""

from __future__ import annotations

import random
from typing import NamedTuple

from llamad.protocol.blobs import Blob
from llamad.protocol.cache_memory import CacheMemory
from llamad.protocol.messages import ACTION_INSERT
from llamad.ses1 import ses1
from support.states.adopting_engine import Chained

BLOCK = 256


def text(seed: int, n: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(33, 120) for _ in range(n))


class Block(NamedTuple):
    """A part of a prompt's state in SES1."""

    begin: int
    end: int
    data: bytes


def blocks_of(prompt: bytes) -> list[Block]:
    """Return the parts of a prompt with the answer of the fake."""
    front = CacheMemory()
    made = []
    with Chained(front) as h:
        h.keep(prompt)
        entry = max(front.entries(), key=lambda one: one.n_tokens)
        segments = front.pin(entry.id)
        states = [bytes(one.data[8 + 4 * one.n_tokens :]) for one in segments]
        tokens = bytes(segments[-1].data[8 : 8 + 4 * entry.n_tokens])
        whole = ses1.join(h.layout, states)
        for begin in range(0, entry.n_tokens, BLOCK):
            n = min(entry.n_tokens, begin + BLOCK)
            data = b"SES1" + n.to_bytes(4, "little") + tokens[: 4 * n] + ses1.cut(h.layout, whole, begin, n)
            made.append(Block(begin, n, data))
        for one in segments:
            one.data.release()
        front.unpin(entry.id)
    return made


def insert(h: Chained, block: Block, blob: Blob | None = None, **options) -> int:
    n = len(block.data)
    blob = Blob(n) if blob is None else blob
    blob.size = n
    memoryview(blob)[:] = block.data
    return h.act(ACTION_INSERT, 0, blob, n_begin=block.begin, n_tokens=block.end, n_bytes=n, **options)
