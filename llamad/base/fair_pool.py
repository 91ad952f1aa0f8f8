"""Thread pools whose work comes from several clients. Clients take turns, and none of them can occupy every thread.
SizedPool also keeps short work from waiting behind long work.

run() and close() are called on the event loop; the work runs on the threads. The pools must not know what the work is.
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
    """With several threads one client gets at most all but one of them, so that another's work begins at once."""

    def __init__(self, n_threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self.turns = FairTurns(n_threads)

    async def run(self, client: int, work: Callable[[], T], claim: Claim | None = None) -> T:
        """Return or raise what `work` returns or raises. A cancelled call does not begin; work that has begun runs to
        its end. `claim` counts the memory that the work refers to, until the work ends or is cancelled before it
        begins."""
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
            # An exception refers to this frame. If the frame still referred to a request's body, only the garbage
            # collector would free the body.
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
            done.exception()  # marks it as retrieved: the caller may be gone

    def close(self) -> None:
        """Cancel the work that has not begun."""
        self.turns.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


class SizedPool:
    """A pool of `n_threads` for short work, and one of the same size for work larger than `short_max`."""

    def __init__(self, n_threads: int, short_max: int, name: str) -> None:
        self._short_max = short_max
        self._short = FairPool(n_threads, name)
        self._long = FairPool(n_threads, f"{name}-long")

    async def run(self, client: int, size: int, work: Callable[[], T]) -> T:
        """Run the work in the pool for its size; see FairPool.run()."""
        return await (self._short if size <= self._short_max else self._long).run(client, work)

    def close(self) -> None:
        self._short.close()
        self._long.close()
