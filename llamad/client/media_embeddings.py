"""Embeddings of images and sound that an engine maps for tasks: each blob once, as long as a task needs it.

Event loop only. The last reference to MediaEmbeddings may be dropped on any thread, which then notifies the event loop.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from llamad.protocol.blobs import Blob


class Mapping(Protocol):
    """The part of an engine's control socket that maps and unmaps blobs."""

    async def lend(self, blob: Blob) -> bool: ...

    def give_back(self, blob: Blob) -> None: ...


class MediaEmbeddings:
    """The embeddings of one prompt. `packed` has their positions in it (packed_run() of client/command.pyx). The engine
    unmaps their memory when the last reference is gone."""

    def __init__(self, packed: bytes, blobs: tuple[Blob, ...], lending: Lending) -> None:
        self.packed = packed
        self.lending = lending
        self.blobs = blobs

    def __del__(self) -> None:
        self.lending.release(self.blobs)


class Lending:
    """The blobs that one engine has mapped."""

    def __init__(self, asking: Mapping) -> None:
        self.asking = asking
        self._loop = asyncio.get_running_loop()
        self._n_users: dict[int, int] = {}
        self._mapping: dict[int, asyncio.Task[bool]] = {}

    async def lend(self, packed: bytes, blobs: list[Blob]) -> MediaEmbeddings:
        """Map the blobs in the engine and return the embeddings of a prompt. Raises MemoryError, EngineEnded."""
        rows = MediaEmbeddings(packed, tuple(blobs), self)
        for blob in blobs:
            self._n_users[blob.id] = self._n_users.get(blob.id, 0) + 1
        for blob in blobs:
            task = self._mapping.get(blob.id)
            if task is None:
                task = self._loop.create_task(self.asking.lend(blob))
                self._mapping[blob.id] = task
            if not await asyncio.shield(task):
                raise MemoryError
        return rows

    def release(self, blobs: tuple[Blob, ...]) -> None:
        """A prompt no longer needs these blobs. May be called on any thread."""
        try:
            self._loop.call_soon_threadsafe(self._give_back, blobs)
        except RuntimeError:
            pass  # the event loop has ended

    def _give_back(self, blobs: tuple[Blob, ...]) -> None:
        for blob in blobs:
            n = self._n_users.get(blob.id, 0) - 1
            if n > 0:
                self._n_users[blob.id] = n
                continue
            self._n_users.pop(blob.id, None)
            task = self._mapping.pop(blob.id, None)
            if task is not None:
                self.asking.give_back(blob)
