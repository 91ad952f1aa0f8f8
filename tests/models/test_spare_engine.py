"""A spare engine process: when there is one, who gets it, and that none is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.live_daemon import engines

from llamad.flags.parse import parse
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.models.spare_engine import SpareEngine

QUIET_SECONDS = 0.1
FLAGS = ("-np", "1", "-c", "256", "-t", "1", "--no-warmup")


def with_hosts(model: str, then: Callable[[SpareEngine, Host, Host], Awaitable[None]]) -> None:
    """Do something with two hosts that have loaded nothing yet, and close them."""

    async def run() -> None:
        spare = SpareEngine(QUIET_SECONDS)
        hosts = [Host(parse(["-m", model, *FLAGS], {}).settings.model) for _ in range(2)]
        for host in hosts:
            spare.add(host)
        try:
            await asyncio.wait_for(then(spare, *hosts), 60)
        finally:
            spare.close()
            for host in hosts:
                await host.close()

    asyncio.run(run())
    assert engines(os.getpid()) == []


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def pid_of(host: Host) -> int:
    assert host._process is not None
    return host._process.pid


def test_the_next_load_takes_the_spare_process(tiny: str) -> None:
    async def run(spare: SpareEngine, first: Host, second: Host) -> None:
        await first.load()
        assert spare.pid is None  # nothing is kept before begin()
        spare.begin()
        await until(lambda: spare.pid)
        pid = spare.pid
        await second.load()
        assert pid_of(second) == pid
        assert second.state is State.READY
        await asyncio.sleep(3 * QUIET_SECONDS)
        assert spare.pid is None  # both are loaded
        await first.unload()
        await until(lambda: spare.pid)
        await first.load()
        assert first.state is State.READY

    with_hosts(tiny, run)


def test_none_is_started_while_a_model_loads(tiny: str) -> None:
    async def run(spare: SpareEngine, first: Host, _: Host) -> None:
        spare.begin()
        loading = asyncio.ensure_future(first.load())
        while not loading.done():
            assert spare.pid is None
            await asyncio.sleep(0.01)
        await until(lambda: spare.pid)

    with_hosts(tiny, run)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_spare_process_that_got_a_signal_costs_nothing(tiny: str, number: int) -> None:
    async def run(spare: SpareEngine, first: Host, _: Host) -> None:
        spare.begin()
        await until(lambda: spare.pid)
        assert spare.pid is not None
        os.kill(spare.pid, number)
        await asyncio.sleep(0.5)
        await first.load()
        assert first.state is State.READY

    with_hosts(tiny, run)
