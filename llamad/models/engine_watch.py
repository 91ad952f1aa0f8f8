"""Ends engines that hang: one whose load makes no progress, and one that has work and finishes no step.

Tasks on the event loop, which the host starts and cancels. What counts as progress is the host's matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from llamad.models.engine_process import EngineProcess

WATCH_SECONDS = 1.0


async def watch_load(process: EngineProcess, limit: float, t_heard: Callable[[], float]) -> None:
    """End an engine whose last message (`t_heard`) is more than `limit` seconds ago."""
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        silent = time.monotonic() - t_heard()
        if silent > limit:
            process.kill(f"it hangs: the load has made no progress for {silent:.0f} s")


async def watch(process: EngineProcess, silence: Callable[[], tuple[float, float]]) -> None:
    """End an engine that has work and makes no progress. `silence` returns for how many seconds that has been so, and
    the limit."""
    t_last, seen = time.monotonic(), 0.0
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        now = time.monotonic()
        silent, limit = silence()
        # If this process was stopped, too (a paused container or machine), the engine was not silent all the time.
        seen = min(silent, seen + min(now - t_last, WATCH_SECONDS))
        t_last = now
        if seen > limit:
            process.kill(f"it hangs: it has had work for {seen:.0f} s and finished no step")
