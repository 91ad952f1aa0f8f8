"""A host whose engine is unloaded and loaded again: its states, what stays, what is left behind, and races."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.live_daemon import engines

from llamad.flags.parse import parse
from llamad.models.host import Host
from llamad.models.host_state import State

N_TIMES = 20
N_WARM = 4  # the first loads import modules, start threads, and fill caches
RSS_MAX = 3 << 20  # as much may remain of all the loads after the first ones

READY, UNLOADED, SLEEPING, LOADING = State.READY, State.UNLOADED, State.SLEEPING, State.LOADING


def with_host(model: str, then: Callable[[Host], Awaitable[None]], *flags: str) -> None:
    """Do something with a host that has loaded nothing yet, and close it."""

    async def run() -> None:
        settings = parse(
            ["-m", model, "-np", "1", "-c", "256", "-t", "1", "--no-warmup", *flags], {}
        ).settings
        host = Host(settings.model)
        try:
            await asyncio.wait_for(then(host), 100)
        finally:
            await host.close()

    asyncio.run(run())


def descriptors() -> dict[str, str]:
    """The open descriptors and what they are, without numbers that change."""
    targets = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            targets[name] = re.sub(r"\d+", "", os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass  # the one of listdir itself
    return targets


def rss_bytes() -> int:
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert resident is not None
    return int(resident[1]) * 1024


def test_nothing_is_left_of_engines_that_were_unloaded(tiny: str) -> None:
    async def run(host: Host) -> None:
        seen: list[tuple[list[str], int, int, int]] = []
        for _ in range(N_TIMES):
            await host.load()
            assert host.state is READY
            assert len(engines(os.getpid())) == 1
            await host.unload()
            assert host.state is UNLOADED
            assert engines(os.getpid()) == []
            gc.collect()
            tasks = len(asyncio.all_tasks())
            threads = len(os.listdir("/proc/self/task"))
            seen.append((sorted(descriptors().values()), tasks, threads, rss_bytes()))
        files, tasks, threads, rss = seen[N_WARM]
        for now in seen[N_WARM:]:
            assert now[0] == files
            assert now[1] == tasks
            assert now[2] <= threads + 1  # the loop's executor may still get its last thread
        assert seen[-1][3] - rss < RSS_MAX

    with_host(tiny, run)


def test_the_states_of_a_host_are_reported(tiny: str) -> None:
    states: list[State] = []

    async def run(host: Host) -> None:
        host.on_state.append(lambda one: states.append(one.state))
        assert (host.state, host.is_idle) == (UNLOADED, True)
        await host.load()
        await host.load()  # it serves, so there is nothing to do
        await host.unload(SLEEPING)
        assert host.model is not None
        assert host.model.vocab.tokenize(b"a text", False, False)
        loading = asyncio.ensure_future(host.load())
        await asyncio.sleep(0)
        assert (host.state, host.is_waking) == (LOADING, True)
        await loading
        assert not host.is_waking
        (engine,) = engines(os.getpid())
        os.kill(engine, signal.SIGKILL)
        while states[-1] is READY:
            await asyncio.sleep(0.01)
        while states[-1] is not READY:
            await asyncio.sleep(0.01)

    with_host(tiny, run)
    assert states == [LOADING, READY, SLEEPING, LOADING, READY, State.RESTARTING, READY, State.DRAINING]


def test_what_the_engine_counted_stays(tiny: str) -> None:
    async def run(host: Host) -> None:
        await host.load()
        engine, model = host.engine, host.model
        assert engine is not None
        engine._before["n_predicted"] = 17
        await host.unload()
        assert engine.stats()["n_predicted"] == 17
        await host.load()
        assert host.engine is engine
        assert host.model is model
        assert engine.stats()["n_predicted"] == 17

    with_host(tiny, run)


def test_calls_at_once_share_a_load(tiny: str) -> None:
    async def run(host: Host) -> None:
        loads = [asyncio.ensure_future(host.load()) for _ in range(8)]
        await asyncio.sleep(0)
        loads[0].cancel()  # a caller that leaves does not stop the load for the others
        await asyncio.wait(loads)
        assert host.state is READY
        assert len(engines(os.getpid())) == 1

    with_host(tiny, run)


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.1, 0.3, 0.6])
def test_a_load_can_be_given_up_at_any_time(tiny: str, delay: float) -> None:
    async def run(host: Host) -> None:
        loading = asyncio.ensure_future(host.load())
        await asyncio.sleep(delay)
        await host.unload()
        assert host.state is UNLOADED
        assert engines(os.getpid()) == []
        await asyncio.wait_for(loading, 5)
        assert host.state is UNLOADED
        await host.load()
        assert host.state is READY

    with_host(tiny, run)


def test_the_last_of_many_calls_decides(tiny: str) -> None:
    """None of them waits for another, and never are there two engines."""

    async def run(host: Host) -> None:
        calls: list[asyncio.Future[None]] = []
        for i in range(12):
            calls.append(asyncio.ensure_future(host.unload() if i % 2 else host.load()))
            await asyncio.sleep(0.03 * (i % 5))
            assert len(engines(os.getpid())) <= 1
        await asyncio.wait(calls)
        assert host.state is UNLOADED
        assert engines(os.getpid()) == []
        calls = [asyncio.ensure_future(one) for one in (host.load(), host.unload(), host.load())]
        await asyncio.wait(calls)
        assert host.state is READY
        assert len(engines(os.getpid())) == 1

    with_host(tiny, run)


def test_a_load_waits_for_the_end_of_the_last_engine(tiny: str) -> None:
    async def run(host: Host) -> None:
        await host.load()
        (engine,) = engines(os.getpid())
        os.kill(engine, signal.SIGSTOP)
        unloading = asyncio.ensure_future(host.unload(SLEEPING, seconds=0.5))
        await asyncio.sleep(0)
        assert host.state is SLEEPING
        loading = asyncio.ensure_future(host.load())
        await asyncio.sleep(0.2)
        assert engines(os.getpid()) == [engine]
        await unloading
        await loading
        assert host.state is READY
        assert engines(os.getpid()) != [engine]

    with_host(tiny, run)


def test_a_load_that_failed_can_be_repeated(tiny: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + os.urandom(500))

    async def run(host: Host) -> None:
        await host.load()
        assert host.state is State.FAILED
        assert host.is_refused or host.error
        path.write_bytes(Path(tiny).read_bytes())
        await host.load()
        assert (host.state, host.error, host.is_refused) == (READY, "", False)

    with_host(str(path), run)


def test_a_host_can_be_closed_while_it_is_unloaded_or_loads_again(tiny: str) -> None:
    async def unloaded(host: Host) -> None:
        await host.load()
        await host.unload()

    async def unloading(host: Host) -> None:
        await host.load()
        asyncio.ensure_future(host.unload())  # noqa: RUF006  (the host keeps what it started)
        await asyncio.sleep(0)

    async def waking(host: Host) -> None:
        await unloading(host)
        asyncio.ensure_future(host.load())  # noqa: RUF006
        await asyncio.sleep(0.1)

    async def closed(host: Host) -> None:
        await host.load()
        await host.close()
        await host.load()
        await host.unload()
        assert host.state is State.DRAINING

    for then in (unloaded, unloading, waking, closed):
        with_host(tiny, then)
        assert engines(os.getpid()) == []
