"""Owns rows of images and sound that an engine maps for tasks: each blob once, for as long as any of them needs it.

Event loop only, but the last reference to MediaEmbeddings may go in any thread: the event loop is told.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from llamad.protocol.blobs import Blob


class Mapping(Protocol):
    """The part of an engine's control that the rows need."""

    async def lend(self, blob: Blob) -> bool: ...

    def give_back(self, blob: Blob) -> None: ...


class MediaEmbeddings:
    """The embeddings of one prompt. `packed` says where they stand in it (packed_run() of protocol/command.pyx). Their
    memory is given back with the last reference to it."""

    def __init__(self, packed: bytes, blobs: tuple[Blob, ...], lending: Lending) -> None:
        self.packed = packed
        self.lending = lending
        self._blobs = blobs

    def __del__(self) -> None:
        self.lending.release(self._blobs)


class Lending:
    """What one engine has mapped."""

    def __init__(self, asking: Mapping) -> None:
        self.asking = asking
        self._loop = asyncio.get_running_loop()
        self._n_users: dict[int, int] = {}
        self._mapping: dict[int, asyncio.Task[bool]] = {}

    async def lend(self, packed: bytes, blobs: list[Blob]) -> MediaEmbeddings:
        """Raises MemoryError, EngineEnded."""
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
        """Any thread: a prompt with these blobs needs them no more."""
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
