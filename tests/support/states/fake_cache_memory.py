"""A cache memory of a model without an engine: entries that a test puts in, and how often each is pinned."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Sequence

from llamad.base.clock import clock_us
from llamad.protocol.cache_memory import EntryInfo, Segment, checksum
from llamad.ses1.ses1 import Layout, cut
from support.states.ses1_layouts import FORMS, N_VOCAB, Form, memory

PLAIN = FORMS["plain"]


def tokens_of(seed: int, n: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(N_VOCAB) for _ in range(n)]


def packed(tokens: Sequence[int]) -> bytes:
    return array("i", tokens).tobytes()


def ses1(tokens: Sequence[int], state: bytes | None = None, form: Form = PLAIN) -> bytes:
    """An entry, with a state as llama.cpp writes it unless one is given. Equal beginnings have equal cells."""
    head = struct.pack("<4sI", b"SES1", len(tokens))
    return head + packed(tokens) + (memory(form, list(tokens)) if state is None else state)


class FakeMemory:
    """The part of CacheMemory that the cache on disk uses. `model` becomes the fingerprint."""

    def __init__(self, model: str, form: Form = PLAIN) -> None:
        self.fingerprint = hashlib.sha256(model.encode()).digest() if model else bytes(32)
        self.form = form
        self.data: dict[int, bytes] = {}
        self.infos: dict[int, EntryInfo] = {}
        self.pins: Counter[int] = Counter()
        self.before: dict[int, list[Segment]] = {}  # the entries before it, of a prompt that has several
        self._n_made = 0

    def put(
        self,
        tokens: Sequence[int],
        *,
        owner: int = 0,
        adapters: tuple[int, int, int] = (0, 0, 0),
        session: int = 0,
        state: bytes | None = None,
        retention_s: int = 0,
    ) -> int:
        """Add an entry and return its number."""
        self._n_made = id = self._n_made + 1
        self.data[id] = data = ses1(tokens, state, self.form)
        self.infos[id] = EntryInfo(
            id, len(tokens), len(data), owner, adapters, session, clock_us(), checksum(data), retention_s
        )
        return id

    def use(self, id: int) -> None:
        info = self.infos[id]
        self.infos[id] = info._replace(used=clock_us(), n_returns=info.n_returns + 1)

    def drop(self, id: int) -> None:
        del self.infos[id], self.data[id]

    def entries(self) -> list[EntryInfo]:
        return list(self.infos.values())

    def pin(self, id: int, begin: int = 0, end: int = sys.maxsize) -> list[Segment] | None:
        if id not in self.data:
            return None
        self.pins[id] += 1
        info = self.infos[id]
        before = self.before.get(id, [])
        first = before[-1].n_tokens if before else 0
        last = Segment(info.n_tokens, info.checksum, memoryview(self.data[id]), begin=first)
        copies = (one._replace(data=memoryview(one.data)) for one in before)
        return [*(one for one in copies if one.begin < end and begin < one.n_tokens), last]

    def put_parts(self, tokens: Sequence[int], ends: Sequence[int], layout: Layout) -> int:
        """Add a prompt whose entries end after so many tokens each, the last one at its end. Return its number."""
        state, begin = memory(self.form, list(tokens)), 0
        parts: list[Segment] = []
        for end in ends:
            piece = cut(layout, state, begin, end)
            data = ses1(tokens[:end], piece)
            parts.append(Segment(end, checksum(data), memoryview(data), begin=begin))
            begin = end
        id = self.put(tokens, state=piece)
        self.before[id] = parts[:-1]
        return id

    def unpin(self, id: int) -> None:
        self.pins[id] -= 1
