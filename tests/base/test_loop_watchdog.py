"""The watchdog of tests says what held an event loop: Python, a wait, or C that keeps the GIL in another thread."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import uvloop
from support.fake_daemon import Faked
from support.loops.watchdog import Stall, Watchdog

from llamad.engine.testing.fake import Fake

BOUND_SECONDS = 0.1
HELD_SECONDS = 0.6


def compute_in_python() -> None:
    t_end = time.monotonic() + HELD_SECONDS
    while time.monotonic() < t_end:
        pass


def wait_for_nothing() -> None:
    time.sleep(HELD_SECONDS)


def keep_the_gil() -> None:
    """Call functions in C that keep it, each longer than the last, until one has kept it for the time. Only computing
    counts: between two calls the thread may wait for a core, without the GIL."""
    n, t_start = 1_000_000, time.monotonic()
    while True:
        t_before = time.thread_time()
        sum(range(n))
        if time.thread_time() - t_before > HELD_SECONDS or time.monotonic() - t_start > 20:
            return
        n *= 2


def keep_the_gil_in_a_thread() -> None:
    threading.Thread(target=keep_the_gil).start()


@pytest.mark.parametrize(
    "hold", [compute_in_python, wait_for_nothing, keep_the_gil, keep_the_gil_in_a_thread]
)
def test_what_held_the_loop_is_named(hold):
    stalls: list[Stall] = []

    async def run() -> None:
        watchdog = Watchdog(BOUND_SECONDS, stalls.append)
        await asyncio.sleep(BOUND_SECONDS)
        asyncio.get_running_loop().call_soon(hold)
        t_end = time.monotonic() + 30
        while not any(stall.late_s > HELD_SECONDS / 2 for stall in stalls) and time.monotonic() < t_end:
            await asyncio.sleep(0.05)
        watchdog.close()

    uvloop.run(run())
    longest = max(stalls, key=lambda stall: stall.late_s)
    name = hold.__name__.removesuffix("_in_a_thread")
    assert any(f"in {name}" in str(stall) for stall in stalls), longest
    if hold is compute_in_python:
        assert longest.cpu_s > 0.01


def test_a_loop_that_is_punctual_has_no_stalls():
    stalls: list[Stall] = []

    async def run() -> None:
        watchdog = Watchdog(5.0, stalls.append)
        for _ in range(20):
            await asyncio.sleep(0.01)
        watchdog.close()

    uvloop.run(run())
    assert stalls == []


def test_a_daemon_says_that_its_loop_was_late(capfd):
    with Faked(Fake()) as server:
        server.loop.call_soon_threadsafe(wait_for_nothing)
        assert server.client.get("/health").status == 200
        server.until(lambda: "the event loop was late" in capfd.readouterr().err)
