"""A load that makes no progress is ended and tried again, however long a sound one may take."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest
from support.live_daemon import model_path

from llamad.flags.parse import parse
from llamad.models import stalls
from llamad.models.engine_watch import Activity
from llamad.models.host import Host
from llamad.models.host_state import State

WAIT_SECONDS = 60


def test_an_engine_that_stops_in_a_load_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stalls, "STALL_SECONDS_MIN", 1.0)

    async def load() -> None:
        host = Host(parse(["-m", model_path(), "-t", "1", "-c", "256"], {}).settings.model)
        loading = host.begin_load()
        async with asyncio.timeout(WAIT_SECONDS):
            while host._process is None or host._process.ended is None:
                await asyncio.sleep(0)
            os.kill(host._process.pid, signal.SIGSTOP)
            await loading
        assert host.state is State.READY
        assert host.restarts.n_total == 1
        await host.close()

    asyncio.run(load())
    assert "it hangs: the load has made no progress for" in caplog.text


def test_an_engine_that_waits_for_memory_does_not_hang(monkeypatch: pytest.MonkeyPatch, tiny: str) -> None:
    monkeypatch.setattr(stalls, "STALL_SECONDS_MIN", 0.5)

    async def load() -> None:
        host = Host(parse(["-m", tiny, "-t", "1", "-c", "256"], {}).settings.model)
        from llamad.protocol.control_messages import Budget

        host.budget = Budget

        async def wait(*_: object) -> None:
            await asyncio.sleep(4)

        host.on_planned = wait
        await asyncio.wait_for(host.load(), WAIT_SECONDS)
        assert (host.state, host.restarts.n_total) == (State.READY, 0)
        await host.close()

    asyncio.run(load())


def test_what_counts_as_activity() -> None:

    activity = Activity(os.getpid())
    assert activity.has_moved(1.0), "looking takes calls that read"
    t_end = time.process_time() + 0.1
    while time.process_time() < t_end:
        pass
    assert activity.has_moved(1.0)
    idle = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        time.sleep(0.2)
        activity = Activity(idle)
        time.sleep(0.2)
        assert not activity.has_moved(0.2)
    finally:
        os.kill(idle, signal.SIGKILL)
        os.waitpid(idle, 0)
