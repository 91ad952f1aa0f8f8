"""Owns the threads that tokenize what is too long for the event loop, so that a long text delays no short one.

Called on the event loop. Texts wait only behind those of their own size, and those of /tokenize, which no context
bounds, in a thread of their own; clients take turns. A client that leaves takes its text out of the queue, or ends its
tokenizing soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from llamad.api.request.errors import bad
from llamad.base.fair_pool import SizedPool
from llamad.tokenizer.vocab import Cancel, Cancelled, CannotTokenize

T = TypeVar("T")

N_THREADS = 2
# Characters from which on a text is long: some milliseconds of ordinary text, a quarter second of the worst.
LONG_CHARS = 65536


class TextWorkers:
    def __init__(self) -> None:
        self._texts = SizedPool(N_THREADS, LONG_CHARS, "llamad-worker")
        self._counting = SizedPool(N_THREADS, LONG_CHARS, "llamad-counting")

    async def run(self, client: int, n_chars: int, work: Callable[[], T]) -> T:
        """Tokenize what shall be decoded or embedded; also for other work of milliseconds (no characters)."""
        return await _run(self._texts, client, n_chars, work)

    async def count(self, client: int, n_chars: int, work: Callable[[], T]) -> T:
        """Tokenize what is only counted or looked at, however long."""
        return await _run(self._counting, client, n_chars, work)

    def close(self) -> None:
        self._texts.close()
        self._counting.close()


async def _run(pool: SizedPool, client: int, n_chars: int, work: Callable[[], T]) -> T:
    cancel = Cancel()

    def run() -> T:
        with cancel:
            return work()

    try:
        return await pool.run(client, n_chars, run)
    except asyncio.CancelledError:
        cancel.set()
        raise
    except Cancelled:
        raise asyncio.CancelledError from None
    except CannotTokenize as error:
        raise bad(str(error)) from None
