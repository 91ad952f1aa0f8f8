"""A watchdog of an event loop: says when it was late, for how long, whose fault that was, and what held it.

A heartbeat on the loop arms Python's faulthandler anew each time. Its thread needs no GIL, so a call into C that keeps
the GIL is caught in the act. The stacks of all threads go to a file, and the next heartbeat reports them with the
loop's thread first.

A late loop on a busy machine is not wrong. The kernel counts how long each thread was ready to run but had no core
(schedstat): what remains of the delay without that is the program's own.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import msgspec

BEATS = 5  # within the bound
STACK_LINES = 14
OTHERS_MAX = 6


class Stall(msgspec.Struct):
    """The loop was late by late_s, of which some thread of the program had no core for starved_s."""

    late_s: float
    starved_s: float
    cpu_s: float  # that the loop's thread computed meanwhile
    stack: str

    @property
    def own_s(self) -> float:
        """How long the program itself kept the loop."""
        return max(self.cpu_s, self.late_s - self.starved_s)

    def __str__(self) -> str:
        return (
            f"the event loop was late by {self.late_s * 1000:.0f} ms ({self.cpu_s * 1000:.0f} ms of them computing,"
            f" {self.starved_s * 1000:.0f} ms without a core); it was in:\n{self.stack}"
        )


def _waits(thread: str) -> bool:
    """Whether the innermost call of a thread's stack is a wait."""
    innermost = thread.partition("File ")[2].partition("\n")[0]
    return any(word in innermost for word in ("wait", "select", "_worker"))


def _starved_ns() -> dict[str, int]:
    """Returns, of each thread, how long it was ready to run but did not."""
    waits = {}
    for name in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{name}/schedstat", encoding="ascii") as file:
                waits[name] = int(file.read().split()[1])
        except (OSError, IndexError):
            pass  # it has ended
    return waits


class Watchdog:
    """Made and started on the event loop that it watches. `report` is called there, after each stall."""

    _in_use = threading.Lock()  # faulthandler has one timer

    def __init__(self, bound_s: float, report: Callable[[Stall], None], *, has_stacks: bool = True) -> None:
        """Without stacks it only says how late the loop was: faulthandler may crash while other threads run."""
        self._bound_s = bound_s
        self._every_s = bound_s / BEATS
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._has_timer = has_stacks and self._in_use.acquire(blocking=False)
        self._file = tempfile.TemporaryFile() if self._has_timer else None  # noqa: SIM115  (closed in close())
        self._timer: asyncio.TimerHandle | None = None
        self._arm(time.monotonic())

    def _arm(self, now: float) -> None:
        """Begin to watch from `now` on. What follows reads files, and another thread may take the GIL meanwhile."""
        self._due = now + self._every_s
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
            faulthandler.dump_traceback_later(self._every_s + self._bound_s, file=self._file.fileno())
        self._cpu_s = time.thread_time()
        self._starved = _starved_ns()
        self._timer = self._loop.call_later(self._every_s, self._beat)

    def _beat(self) -> None:
        now = time.monotonic()
        late_s = now - self._due
        if late_s > self._bound_s:
            self._report(self._stall(late_s))
        self._arm(now)

    def _stall(self, late_s: float) -> Stall:
        now = _starved_ns()
        starved_ns = max((waited - self._starved.get(name, 0) for name, waited in now.items()), default=0)
        return Stall(late_s, starved_ns / 1e9, time.thread_time() - self._cpu_s, self._stack())

    def _stack(self) -> str:
        if self._file is None:
            return "  (not looked at)"
        self._file.seek(0)
        threads = self._file.read().decode("utf-8", "replace").split("\n\n")
        mark = f"0x{self._thread:016x}"
        own = [one for one in threads if f"Thread {mark}" in one]
        # A worker in C that keeps the GIL holds the loop as well as the loop itself does. Others wait.
        others = [one for one in threads if one not in own and not _waits(one)]
        shown = [one.strip().splitlines()[:STACK_LINES] for one in [*own, *others[:OTHERS_MAX]]]
        return "\n\n".join("\n".join(lines) for lines in shown)

    def close(self) -> None:
        """Call it on the loop."""
        if self._timer is not None:
            self._timer.cancel()
        if self._file is not None:
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
            self._file = None
            self._in_use.release()


def to_stderr(stall: Stall) -> None:
    """Where pytest shows it beside a test that fails."""
    print(stall, file=sys.stderr, flush=True)
