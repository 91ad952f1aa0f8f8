"""Decides when an idle engine is woken for new tasks.

Requests that arrive together are parsed one after the other. An engine that started with the first would prefill it
alone while the others wait, and on a GPU that step takes nearly as long as one for all of them. So an idle engine
is woken when there is enough for a step, or after a few iterations of the event loop without another task. This costs
a lone request a few microseconds; there is no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# From the socket to the engine a request takes up to two iterations of the event loop (a task starts, a task resumes).
QUIET_TURNS = 3


class Gathering:
    """The tasks for which the engine has not been woken yet. The limits are those of one step."""

    def __init__(
        self, rouse: Callable[[], None], wake: Callable[[], None], *, n_tokens_max: int, n_tasks_max: int
    ) -> None:
        self._rouse = rouse
        self._wake = wake
        self._n_tokens_max = n_tokens_max
        self._n_tasks_max = n_tasks_max
        self._n_tokens = self._n_tasks = self._n_quiet = 0
        self._is_turning = False
        self.is_open = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to gather: a task is about to be put into the ring, and the engine will be woken for it later."""
        if not self.is_open:
            self.is_open = True
            self._rouse()
        self._n_quiet = 0
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._turn, loop)

    def add(self, n_tokens: int) -> None:
        """Count a task that is now in the ring; its prompt has `n_tokens`."""
        self._n_tokens += n_tokens
        self._n_tasks += 1
        if self._n_tokens >= self._n_tokens_max or self._n_tasks >= self._n_tasks_max:
            self._close()

    def _close(self) -> None:
        self.is_open = False
        self._n_tokens = self._n_tasks = 0
        self._wake()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.is_open and self._n_quiet == QUIET_TURNS:
            self._close()
        self._n_quiet += 1
        self._is_turning = self.is_open
        if self.is_open:
            loop.call_soon(self._turn, loop)
