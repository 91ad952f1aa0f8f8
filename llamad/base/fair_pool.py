"""Owns threads whose work comes from several clients: they take turns, and none of them holds every thread. With a size
for each piece of work, short ones never wait behind long ones.

run() and close() belong to the event loop; work runs on the threads. Must not know what the work is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from llamad.base.fair_turns import FairTurns
from llamad.base.memory_budget import Claim

T = TypeVar("T")


class FairPool:
    """With several threads one client has all but one of them at most, so that another's work begins at once."""

    def __init__(self, n_threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self.turns = FairTurns(n_threads)

    async def run(self, client: int, work: Callable[[], T], claim: Claim | None = None) -> T:
        """What `work` returns or raises. Cancelled, it does not begin; what has begun goes on to its end. `claim`
        counts the memory that the work refers to: until it has ended, or is cancelled before it begins."""
        held = None if claim is None else claim.hold()
        try:
            await self.turns.enter(client)
            try:
                done = asyncio.get_running_loop().run_in_executor(self._threads, work)
            except BaseException:
                self.turns.leave(client)
                raise
        except BaseException:
            if held is not None:
                held.release()
            raise
        finally:
            # An exception refers to this frame: it must not refer to a body, or only the garbage collector frees it.
            del work
        done.add_done_callback(partial(self._on_done, client, held))
        try:
            return await asyncio.shield(done)
        finally:
            del done

    def _on_done(self, client: int, held: Claim | None, done: asyncio.Future[Any]) -> None:
        self.turns.leave(client)
        if held is not None:
            held.release()
        if not done.cancelled():
            done.exception()  # whoever waited may be gone

    def close(self) -> None:
        """What has not begun is cancelled."""
        self.turns.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class SizedPool:
    """`n_threads` for short work, and as many for work that is larger than `short_max`."""

    def __init__(self, n_threads: int, short_max: int, name: str) -> None:
        self._short_max = short_max
        self._short = FairPool(n_threads, name)
        self._long = FairPool(n_threads, f"{name}-long")

    async def run(self, client: int, size: int, work: Callable[[], T]) -> T:
        """As FairPool.run()."""
        return await (self._short if size <= self._short_max else self._long).run(client, work)

    def close(self) -> None:
        self._short.close()
        self._long.close()
