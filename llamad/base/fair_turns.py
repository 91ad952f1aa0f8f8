"""Owns a number of places that several clients share: they take turns, and none of them holds every place.

Used on the event loop. Must not know what is done in a place.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec


class _Client(msgspec.Struct):
    waiting: deque[asyncio.Future[None]] = msgspec.field(default_factory=deque)
    n_inside: int = 0


class FairTurns:
    """With several places one client has all but one of them at most, so that another one enters at once."""

    def __init__(self, n_places: int) -> None:
        self._n_free = n_places
        self._share = max(1, n_places - 1)
        self._clients: OrderedDict[int, _Client] = OrderedDict()  # whose turn is next comes first

    @property
    def n_waiting(self) -> int:
        return sum(len(client.waiting) for client in self._clients.values())

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits and nobody has a place."""
        return not self._clients

    @asynccontextmanager
    async def place(self, client: int) -> AsyncIterator[None]:
        await self.enter(client)
        try:
            yield
        finally:
            self.leave(client)

    async def enter(self, name: int) -> None:
        """Wait for a place, which is the caller's until leave(). Cancelled, it has none."""
        client = self._clients.setdefault(name, _Client())
        if self._n_free and client.n_inside < self._share:
            # Whoever waits has its share already.
            self._take(name)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.leave(name)
            elif future in client.waiting:
                client.waiting.remove(future)
                self._forget(name)
            raise

    def leave(self, name: int) -> None:
        """Give the place back to whoever is next."""
        self._n_free += 1
        self._clients[name].n_inside -= 1
        self._forget(name)
        while self._n_free:
            next_name = next((one for one in self._clients if self._may_enter(self._clients[one])), None)
            if next_name is None:
                return
            future = self._clients[next_name].waiting.popleft()
            if future.done():  # cancelled
                self._forget(next_name)
                continue
            self._take(next_name)
            future.set_result(None)

    def _take(self, name: int) -> None:
        self._clients[name].n_inside += 1
        self._clients.move_to_end(name)
        self._n_free -= 1

    def _may_enter(self, client: _Client) -> bool:
        return bool(client.waiting) and client.n_inside < self._share

    def _forget(self, name: int) -> None:
        client = self._clients[name]
        if not client.waiting and not client.n_inside:
            del self._clients[name]

    def close(self) -> None:
        """Cancel those who wait."""
        for client in self._clients.values():
            for future in client.waiting:
                future.cancel()
            client.waiting.clear()
