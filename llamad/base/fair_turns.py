"""A number of places that several clients share. Clients take turns, and none of them can hold every place.

Used on the event loop. It must not know what a place is used for.
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
    """With several places one client gets at most all but one of them, so that another client enters at once."""

    def __init__(self, n_places: int) -> None:
        self._n_free = n_places
        self._share = max(1, n_places - 1)
        self._clients: OrderedDict[int, _Client] = OrderedDict()  # in the order of their turns

    @property
    def n_waiting(self) -> int:
        return sum(len(client.waiting) for client in self._clients.values())

    @property
    def is_empty(self) -> bool:
        """Return whether no client waits or holds a place."""
        return not self._clients

    @asynccontextmanager
    async def place(self, client: int) -> AsyncIterator[None]:
        await self.enter(client)
        try:
            yield
        finally:
            self.leave(client)

    async def enter(self, name: int) -> None:
        """Wait for a place, which the caller then holds until leave(). A cancelled call holds none."""
        client = self._clients.setdefault(name, _Client())
        if self._n_free and client.n_inside < self._share:
            # This overtakes nobody: while a place is free, only clients that have used up their share wait.
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
        """Return the place, and give free places to the next clients that wait."""
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
        """Cancel every call that waits."""
        for client in self._clients.values():
            for future in client.waiting:
                future.cancel()
            client.waiting.clear()
