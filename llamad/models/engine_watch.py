"""Ends engines that hang: one whose load makes no progress, one that has work and finishes no step, and one that was
stopped by a signal.

Tasks on the event loop, which the host starts and cancels. What counts as progress of an engine that serves is the
host's matter.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from llamad.models.engine_process import EngineProcess

WATCH_SECONDS = 1.0
# A process that works takes at least this part of a core. One that hangs may still have threads that wait and look.
WORK_PART = 0.02
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


class Activity:
    """Says whether a process computes or reads. A load may take hours on a slow disk, but not without reading."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._cpu_seconds, self._n_read = self._read()

    def has_moved(self, seconds: float) -> bool:
        """Return whether the process has worked since the last call, `seconds` ago."""
        (cpu_seconds, n_read), last = self._read(), (self._cpu_seconds, self._n_read)
        self._cpu_seconds, self._n_read = cpu_seconds, n_read
        return n_read != last[1] or cpu_seconds - last[0] > seconds * WORK_PART

    def _read(self) -> tuple[float, int]:
        """Return the CPU time of the process, and how much it has read: calls, bytes and pages of mapped files."""
        try:
            with open(f"/proc/{self._pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()  # from the third field on
            with open(f"/proc/{self._pid}/io", "rb") as file:
                counts = dict(line.split(b":") for line in file)
        except (OSError, ValueError):  # it has just ended
            return 0.0, 0
        n_read = int(fields[9]) + int(counts[b"rchar"]) + int(counts[b"read_bytes"])
        return (int(fields[11]) + int(fields[12])) * _TICK_SECONDS, n_read


async def watch_load(
    process: EngineProcess, limit: float, t_heard: Callable[[], float], activity: Activity | None
) -> None:
    """End an engine that has sent no message (`t_heard` is the time of the last one) and shown no activity for more
    than `limit` seconds. Without `activity` only messages count."""
    t_last, silent = time.monotonic(), 0.0
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        now = time.monotonic()
        has_moved = t_heard() > t_last or (activity is not None and activity.has_moved(now - t_last))
        # Time in which this process was stopped, too (a paused container or machine), does not count.
        silent = 0.0 if has_moved else silent + min(now - t_last, WATCH_SECONDS)
        t_last = now
        if silent > limit:
            process.kill(f"it hangs: the load has made no progress for {silent:.0f} s")


async def watch(process: EngineProcess, silence: Callable[[], tuple[float, float]]) -> None:
    """End an engine that has work and makes no progress. `silence` returns for how many seconds that has been so, and
    the limit. An engine that is stopped for so long is ended without work, too, because its next request would wait."""
    t_last, seen, stopped = time.monotonic(), 0.0, 0.0
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        now = time.monotonic()
        silent, limit = silence()
        # If this process was stopped, too (a paused container or machine), the engine was not silent all the time.
        passed = min(now - t_last, WATCH_SECONDS)
        seen = min(silent, seen + passed)
        stopped = stopped + passed if process.is_stopped else 0.0
        t_last = now
        if seen > limit:
            process.kill(f"it hangs: it has had work for {seen:.0f} s and finished no step")
        elif stopped > limit:
            process.kill(f"it hangs: a signal stopped it {stopped:.0f} s ago")
