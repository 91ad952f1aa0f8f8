"""Returns freed memory to the system. The C library keeps freed memory for later requests, even after a burst.

A thread checks every few seconds, and trims only while the process is idle, because trimming holds the allocator's
locks for milliseconds. It must not know what the memory was used for.
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
# Trimming less than this is not worth it: the next requests use the memory again.
GROWN_BYTES = 16 << 20
M_MMAP_THRESHOLD = -3
LARGE_BYTES = 256 << 10


def own_bytes() -> int:
    """Return the resident memory of this process that is not backed by a file."""
    fields = Path("/proc/self/statm").read_bytes().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")


def keep_large_blocks_apart() -> None:
    """Make the C library return a large block as soon as it is freed. Without a fixed threshold, the first large block
    that is freed raises it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


class Trimmer:
    """Trims when the process was idle at two checks in a row and has grown since the last trim."""

    def __init__(self, is_idle: Callable[[], bool], prepare: Callable[[], None] = lambda: None) -> None:
        """`prepare` is called before each trim, to free what can be freed."""
        self._is_idle = is_idle
        self._prepare = prepare
        self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
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
                log.warning("freed memory is no longer returned to the system: %s", error)
                return

    def look(self) -> bool:
        """Check once, trim if it is time to, and return whether it trimmed."""
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
        log.debug("returned %d MB of freed memory to the system", (n_before - n_after) >> 20)
        return True
