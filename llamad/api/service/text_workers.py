"""Owns the threads that tokenize what is too long for the event loop, so that a long text delays no short one.

Called on the event loop. Texts wait only behind those of their own size, and those of /tokenize, which no context
bounds, in a thread of their own. A client that leaves takes its text out of the queue, or ends its tokenizing soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from llamad.api.request.errors import bad, queue_full
from llamad.tokenizer.vocab import Cancel, Cancelled, CannotTokenize

T = TypeVar("T")

N_THREADS = 2
# Characters from which on a text is long: some milliseconds of ordinary text, a quarter second of the worst.
LONG_CHARS = 65536


class TextWorkers:
    """`short` also does what takes milliseconds and has nothing to do with texts."""

    def __init__(self, waiting_max: int) -> None:
        self.short = ThreadPoolExecutor(N_THREADS, thread_name_prefix="llamad-worker")
        self._long = ThreadPoolExecutor(N_THREADS, thread_name_prefix="llamad-long")
        self._counting = ThreadPoolExecutor(1, thread_name_prefix="llamad-counting")
        self._counting_long = ThreadPoolExecutor(1, thread_name_prefix="llamad-counting")
        self._waiting_max = waiting_max
        self.n_counting = 0  # texts of /tokenize and its like that wait or are tokenized

    async def run(self, n_chars: int, work: Callable[[], T]) -> T:
        """Tokenize what shall be decoded or embedded."""
        return await _run(self.short if n_chars <= LONG_CHARS else self._long, work)

    async def count(self, n_chars: int, work: Callable[[], T]) -> T:
        """Tokenize what is only counted or looked at, however long. Raises ApiError where too many wait."""
        if self.n_counting >= self._waiting_max:
            raise queue_full()
        self.n_counting += 1
        try:
            return await _run(self._counting if n_chars <= LONG_CHARS else self._counting_long, work)
        finally:
            self.n_counting -= 1

    def close(self) -> None:
        for pool in (self.short, self._long, self._counting, self._counting_long):
            pool.shutdown(wait=False, cancel_futures=True)


async def _run(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    cancel = Cancel()

    def run() -> T:
        with cancel:
            return work()

    try:
        return await asyncio.get_running_loop().run_in_executor(pool, run)
    except asyncio.CancelledError:
        cancel.set()
        raise
    except Cancelled:
        raise asyncio.CancelledError from None
    except CannotTokenize as error:
        raise bad(str(error)) from None
