"""Counts what uses a model: exchanges that need its engine, and streams that go on without their client.

Used on the event loop. Must not know what a model is, or why anybody asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from llamad.http.exchange import Exchange


class Usage:
    """The uses of one model. `last_used` is the time when the last one ended, or of the last touch(). `keep_seconds` is
    the longest time without use for which a client wanted to keep the model loaded, since it was loaded."""

    __slots__ = ("keep_seconds", "last_used", "n_active")

    def __init__(self) -> None:
        self.keep_seconds = 0.0
        self.n_active = 0
        self.last_used = time.monotonic()

    def touch(self) -> None:
        """Note that the model was used just now."""
        self.last_used = time.monotonic()

    def begin(self) -> None:
        """Count one more use; end() must follow."""
        self.n_active += 1

    def end(self) -> None:
        self.n_active -= 1
        self.last_used = time.monotonic()

    def hold(self) -> Callable[[], None]:
        """Count one more use, until the returned function is called for the first time."""
        is_held = True
        self.begin()

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self.end()

        return release


class Uses:
    """Which model each exchange uses. An exchange counts from begin() until its response is complete."""

    def __init__(self) -> None:
        self._by_exchange: dict[Exchange, Usage] = {}

    def __contains__(self, exchange: Exchange) -> bool:
        return exchange in self._by_exchange

    def begin(self, exchange: Exchange, usage: Usage) -> None:
        """Count the exchange as a use of the model. Does nothing if it is counted already."""
        if exchange not in self._by_exchange:
            self._by_exchange[exchange] = usage
            usage.n_active += 1

    def end(self, exchange: Exchange) -> None:
        """The exchange is over."""
        usage = self._by_exchange.pop(exchange, None)
        if usage is not None:
            usage.end()
