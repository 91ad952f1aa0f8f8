"""Owns when an idle engine is woken for new tasks.

Requests that arrive together are parsed one after the other. An engine that began with the first would read it alone,
and all others would wait for that step, which on a device takes nearly as long as one for all of them. So an idle
engine is woken when there is enough for a step, or when the loop has gone round without another task. Going round
costs a lone request some microseconds; there is no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# From a socket's bytes to the engine a request takes up to two turns of the loop (a task is begun, a task goes on).
QUIET_TURNS = 3


class Gathering:
    """The tasks for which the engine has not been woken yet."""

    def __init__(self, wake: Callable[[], None], n_tokens_max: int) -> None:
        self._wake = wake
        self._n_tokens_max = n_tokens_max
        self._n_tokens = 0
        self._n_quiet = 0
        self._is_turning = False
        self.is_open = False

    def add(self, loop: asyncio.AbstractEventLoop, n_tokens: int) -> None:
        """A task of so many prompt tokens is in the ring, and the engine has not been told."""
        self._n_tokens += n_tokens
        self._n_quiet = 0
        self.is_open = self._n_tokens < self._n_tokens_max
        if not self.is_open:
            self._close()
        elif not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._turn, loop)

    def _close(self) -> None:
        self.is_open = False
        self._n_tokens = 0
        self._wake()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.is_open and self._n_quiet == QUIET_TURNS:
            self._close()
        self._n_quiet += 1
        self._is_turning = self.is_open
        if self.is_open:
            loop.call_soon(self._turn, loop)
