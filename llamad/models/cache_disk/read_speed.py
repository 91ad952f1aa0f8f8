"""How long it takes to read a prompt from disk, learned from all reads together.

Two things are learned. The speed of the disk counts only while something is being read, because several prompts at once
share it. How much longer a prompt takes than that, until the engine has it, counts for each prompt. Threads may call
everything at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Bytes per second, until something was read.
SPEED_DEFAULT = 500e6
LEARN_RATE = 0.3
BYTES_MIN = 8 << 20  # fewer bytes say little about the speed
WINDOW_BYTES = 64 << 20  # so many say enough
# A wait for the next bytes counts as at most this: a read that hangs while nothing else is read says little.
WAIT_SECONDS = 1.0
FACTOR_MAX = 4.0
# A prompt that is not read because it would take too long makes it seem a little shorter. Otherwise one bad hour of the
# disk would keep prompts from it until the next start.
DOUBT = 1.005


class ReadSpeed:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._speed = SPEED_DEFAULT
        self._factor = 1.0  # how much longer a prompt takes
        self._n_reading = 0
        self._n_bytes = 0  # that were read since something was learned,
        self._seconds = 0.0  # and in what time, up to
        self._t_last = 0.0

    def seconds(self, n_bytes: int) -> float:
        """Return how long it takes until the engine has so many bytes."""
        return n_bytes / self._speed * self._factor

    def measured(self, n_bytes: int, seconds: float) -> None:
        """So many bytes were read for no other purpose."""
        with self._lock:
            if n_bytes >= BYTES_MIN:
                self._speed = n_bytes / max(seconds, 1e-6)

    def took(self, n_bytes: int, seconds: float) -> None:
        """A prompt has taken so long, with all bytes that were to be read when it came."""
        with self._lock:
            if n_bytes >= BYTES_MIN:
                factor = min(max(1.0, seconds * self._speed / n_bytes), FACTOR_MAX)
                self._factor += LEARN_RATE * (factor - self._factor)

    def doubt(self) -> None:
        """Something was not read because it would take too long."""
        with self._lock:
            self._speed *= DOUBT
            self._factor = max(1.0, self._factor / DOUBT)

    def begin(self) -> None:
        """A thread begins to read, until end()."""
        with self._lock:
            self._pass()
            self._n_reading += 1

    def count(self, n_bytes: int) -> None:
        """A thread that reads has so many more bytes."""
        with self._lock:
            self._pass()
            self._n_bytes += n_bytes
            if self._n_bytes >= WINDOW_BYTES:
                self._learn()

    def end(self) -> None:
        with self._lock:
            self._pass()
            self._n_reading -= 1
            if self._n_reading == 0 and self._n_bytes >= BYTES_MIN:
                self._learn()

    def _pass(self) -> None:
        """Count the time up to now if something is being read."""
        now = self._now()
        if self._n_reading > 0:
            self._seconds += min(now - self._t_last, WAIT_SECONDS)
        self._t_last = now

    def _learn(self) -> None:
        speed = self._n_bytes / max(self._seconds, 1e-6)
        self._speed += LEARN_RATE * (speed - self._speed)
        self._n_bytes, self._seconds = 0, 0.0
