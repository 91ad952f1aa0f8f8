"""A fake of the engine's States: slots whose tokens a test sets, that can be busy and can fail. Its blobs are SES1."""

from __future__ import annotations

import asyncio
import struct
from array import array
from concurrent.futures import ThreadPoolExecutor

from llamad.client.slot_states import Restored, Saved, SlotBusy, SlotTokens, StateRefused
from llamad.protocol.blobs import Blob

BLOB_MAGIC = 0xAF143CD8  # of llama.cpp's sequence state
BYTES_A_TOKEN = 256


def blob_of(data: bytes) -> Blob:
    blob = Blob(len(data))
    blob.size = len(data)
    memoryview(blob)[:] = data
    return blob


def ses1_of(tokens: list[int], *, bytes_a_token: int = BYTES_A_TOKEN) -> bytes:
    """A blob of this shape, with bytes of no meaning in place of keys and values."""
    head = b"SES1" + struct.pack("<I", len(tokens)) + array("i", tokens).tobytes()
    return head + struct.pack("<Ii", BLOB_MAGIC, 0) + bytes(range(256)) * (len(tokens) * bytes_a_token // 256)


def tokens_of(data: bytes | memoryview) -> list[int]:
    n = min(struct.unpack_from("<I", data, 4)[0], (len(data) - 8) // 4)
    return list(struct.unpack_from(f"<{n}i", data, 8))


class FakeLayout:
    def bytes_max(self, n_tokens: int) -> int:
        return 16 + n_tokens * (4 + BYTES_A_TOKEN)

    bytes = bytes_max


class FakeStates:
    """`busy` slots make an action wait, or raise with nowait. `fail` is raised by the next action."""

    def __init__(self, n_slots: int, n_ctx: int = 4096) -> None:
        self.slots: list[list[int]] = [[] for _ in range(n_slots)]
        self.layout: FakeLayout | None = FakeLayout()
        self.refusal = "it is a fake"
        self.arena = None
        self.n_ctx = n_ctx
        self.bytes_max = FakeLayout().bytes_max(n_ctx)
        self.workers = ThreadPoolExecutor(2)
        self.busy: set[int] = set()
        self.fail: Exception | None = None
        self.n_waiting = 0

    def close(self) -> None:
        self.workers.shutdown(wait=False)

    async def _turn(self, slot: int, nowait: bool) -> None:
        if slot in self.busy and nowait:
            raise SlotBusy
        self.n_waiting += 1
        try:
            while slot in self.busy:
                await asyncio.sleep(0.001)
        finally:
            self.n_waiting -= 1
        if self.fail is not None:
            failure, self.fail = self.fail, None
            raise failure

    async def save(self, slot: int, *, nowait: bool = False, owner: int = 0) -> Saved:
        await self._turn(slot, nowait)
        return Saved(blob_of(ses1_of(self.slots[slot])), len(self.slots[slot]), 1500)

    async def restore(self, slot: int, blob: Blob, *, nowait: bool = False, owner: int = 0) -> Restored:
        data = bytes(memoryview(blob))
        if data[:4] != b"SES1" or len(data) < 16 or data != ses1_of(tokens_of(data)):
            raise StateRefused(400, "The state is not one of this fake")
        await self._turn(slot, nowait)
        self.slots[slot] = tokens_of(data)
        return Restored(len(self.slots[slot]), len(data), 2500)

    async def erase(self, slot: int, *, nowait: bool = False, owner: int = 0) -> int:
        await self._turn(slot, nowait)
        n, self.slots[slot] = len(self.slots[slot]), []
        return n

    async def tokens(self, slot: int, *, nowait: bool = False, owner: int = 0) -> SlotTokens:
        await self._turn(slot, nowait)
        return await self.look(slot)

    async def look(self, slot: int, *, owner: int = 0) -> SlotTokens:
        return SlotTokens(list(self.slots[slot]), len(self.slots[slot]))

    async def shift(
        self, slot: int, n_keep: int, n_discard: int, *, nowait: bool = False, owner: int = 0
    ) -> int:
        await self._turn(slot, nowait)
        if n_keep + n_discard > len(self.slots[slot]):
            raise StateRefused(400, '"n_keep" and "n_discard" are more than the slot holds')
        del self.slots[slot][n_keep : n_keep + n_discard]
        return len(self.slots[slot])
