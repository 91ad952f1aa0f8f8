"""How fast the disk of the prompt cache is read, learned from all reads together.

Only the time counts while something is being read: prompts wait for other things as well, and several prompts at once
share the disk. Threads may call everything at once.
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
# A prompt that is not read because the disk seems too slow makes it seem a little faster. Otherwise one bad hour of the
# disk would keep prompts from it until the next start.
DOUBT = 1.005


class ReadSpeed:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._speed = SPEED_DEFAULT
        self._n_reading = 0
        self._n_bytes = 0  # that were read since `_t_begin`
        self._t_begin = 0.0

    def seconds(self, n_bytes: int) -> float:
        """Return how long it takes to read so many bytes."""
        return n_bytes / self._speed

    def measured(self, n_bytes: int, seconds: float) -> None:
        """So many bytes were read for no other purpose."""
        with self._lock:
            self._speed = n_bytes / max(seconds, 1e-6)

    def doubt(self) -> None:
        """Something was not read because it would take too long."""
        with self._lock:
            self._speed *= DOUBT

    def begin(self) -> None:
        """A thread begins to read, until end()."""
        with self._lock:
            if self._n_reading == 0:
                self._start()
            self._n_reading += 1

    def count(self, n_bytes: int) -> None:
        """A thread that reads has so many more bytes."""
        with self._lock:
            self._n_bytes += n_bytes
            if self._n_bytes >= WINDOW_BYTES:
                self._learn()
                self._start()

    def end(self) -> None:
        with self._lock:
            self._n_reading -= 1
            if self._n_reading == 0 and self._n_bytes >= BYTES_MIN:
                self._learn()

    def _start(self) -> None:
        self._n_bytes = 0
        self._t_begin = self._now()

    def _learn(self) -> None:
        speed = self._n_bytes / max(self._now() - self._t_begin, 1e-6)
        self._speed += LEARN_RATE * (speed - self._speed)
