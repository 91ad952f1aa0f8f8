"""The threads that tokenize texts that are too long for the event loop, so that a long text delays no short one.

Called on the event loop. A text waits only behind texts of its own size class. Texts of /tokenize, which no context
limits, have threads of their own. Clients take turns. If a client disconnects, its text leaves the queue, or its
tokenizing soon ends.
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
# Texts of at least this many characters are long: they take milliseconds, or a quarter second in the worst case.
LONG_CHARS = 65536


class TextWorkers:
    def __init__(self) -> None:
        self._texts = SizedPool(N_THREADS, LONG_CHARS, "llamad-worker")
        self._counting = SizedPool(N_THREADS, LONG_CHARS, "llamad-counting")

    async def run(self, client: int, n_chars: int, work: Callable[[], T]) -> T:
        """Run `work`, which tokenizes texts to decode or embed, or does something else that takes milliseconds
        (`n_chars` is 0)."""
        return await _run(self._texts, client, n_chars, work)

    async def count(self, client: int, n_chars: int, work: Callable[[], T]) -> T:
        """Run `work`, which tokenizes a text of any length that is only counted or returned."""
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
