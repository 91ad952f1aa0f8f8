"""Owns threads whose work comes from several clients: they take turns, and none of them holds every thread.

run() and close() belong to the event loop; work runs on the threads. Must not know what the work is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class _Client(msgspec.Struct):
    waiting: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = msgspec.field(default_factory=deque)
    n_running: int = 0


class FairPool:
    """With several threads one client has all but one of them at most, so that another's work begins at once."""

    def __init__(self, n_threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self._n_free = n_threads
        self._share = max(1, n_threads - 1)
        self._clients: OrderedDict[int, _Client] = OrderedDict()  # whose turn is next comes first

    @property
    def n_waiting(self) -> int:
        return sum(len(client.waiting) for client in self._clients.values())

    async def run(self, client: int, work: Callable[[], T]) -> T:
        """What `work` returns or raises. Cancelled, it does not begin; what has begun goes on to its end."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._clients.setdefault(client, _Client()).waiting.append((future, work))
        self._begin()
        return await future

    def _begin(self) -> None:
        """Hand work to free threads, a piece for each client in turn."""
        while self._n_free:
            name = next((name for name, one in self._clients.items() if self._may_begin(one)), None)
            if name is None:
                return
            client = self._clients[name]
            self._clients.move_to_end(name)
            future, work = client.waiting.popleft()
            if future.done():  # cancelled
                self._forget(name)
                continue
            client.n_running += 1
            self._n_free -= 1
            done = asyncio.get_running_loop().run_in_executor(self._threads, work)
            done.add_done_callback(partial(self._on_done, name, future))

    def _may_begin(self, client: _Client) -> bool:
        return bool(client.waiting) and client.n_running < self._share

    def _on_done(self, name: int, future: asyncio.Future[Any], done: asyncio.Future[Any]) -> None:
        self._n_free += 1
        self._clients[name].n_running -= 1
        self._forget(name)
        if done.cancelled():
            future.cancel()
        elif future.done():
            done.exception()  # nobody is there to hear it
        elif (error := done.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result())
        self._begin()

    def _forget(self, name: int) -> None:
        client = self._clients[name]
        if not client.waiting and not client.n_running:
            del self._clients[name]

    def close(self) -> None:
        """What has not begun is cancelled."""
        for client in self._clients.values():
            for future, _ in client.waiting:
                future.cancel()
            client.waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)
