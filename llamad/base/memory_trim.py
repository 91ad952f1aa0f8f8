"""Gives freed memory back to the system: the C library keeps what was freed for the next request, also after a burst.

A thread of its own looks every few seconds, and trims when its process is idle: trimming holds the allocator's locks
for milliseconds. Must not know what the memory was used for.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("llamad.memory")

LOOK_SECONDS = 2.0
# Freed memory below this is kept: the next requests use it again.
GROWN_BYTES = 16 << 20
M_MMAP_THRESHOLD = -3
LARGE_BYTES = 256 << 10


def own_bytes() -> int:
    """Return the memory of this process that no file stands behind."""
    fields = Path("/proc/self/statm").read_bytes().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def keep_large_blocks_apart() -> None:
    """Have the C library return a large block as soon as it is freed. Its own threshold rises with the first one."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


class Trimmer:
    """Trims once the process has been idle at two looks in a row and has more memory than after the last time."""

    def __init__(self, is_idle: Callable[[], bool], prepare: Callable[[], None] = lambda: None) -> None:
        """`prepare` is called before each trimming, to free what can be freed."""
        self._is_idle = is_idle
        self._prepare = prepare
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        self._least = 0
        self._was_idle = False
        self._stop = threading.Event()

    def start(self) -> None:
        if self._trim is not None:
            self._least = own_bytes()
            threading.Thread(target=self._run, name="llamad-trim", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            try:
                self.look()
            except OSError as error:
                log.warning("freed memory is not given back any more: %s", error)
                return

    def look(self) -> bool:
        """Trim if it is time to; return whether it was."""
        is_idle, was_idle = self._is_idle(), self._was_idle
        self._was_idle = is_idle
        n_before = own_bytes()
        self._least = min(self._least, n_before)
        if self._trim is None or not (is_idle and was_idle) or n_before - self._least < GROWN_BYTES:
            return False
        self._prepare()
        self._trim(0)
        self._least = n_after = own_bytes()
        self._was_idle = False
        log.debug("gave %d MB of freed memory back", (n_before - n_after) >> 20)
        return True
