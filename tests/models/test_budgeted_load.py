"""A real engine with a budget: it says what it needs, waits, loads, and says what it holds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from support.live_daemon import model_path
from support.rpc.workers import RpcWorker

from llamad.flags.parse import parse
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.protocol.control_messages import Budget

MIB = 1 << 20
HALF = Budget(share=0.5)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def make(*flags: str) -> Host:
    return Host(parse(["-m", model_path(), "-t", "1", *flags], {}).settings.model)


def engine_of(host: Host) -> int:
    assert host._process is not None
    return host._process.pid


def mapped(pid: int) -> bool:
    return model_path() in Path(f"/proc/{pid}/maps").read_text()


def cpus_of(pid: int) -> set[str]:
    texts = [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return {line for text in texts for line in text.splitlines() if line.startswith("Cpus_allowed_list")}


class Reservation:
    """Lets an engine proceed when the test says so."""

    def __init__(self) -> None:
        self.asked, self.may_proceed = asyncio.Event(), asyncio.Event()
        self.need: Mapping[str, int] = {}
        self.capacity: Mapping[str, int] = {}
        self.n_asked = 0

    async def __call__(self, need: Mapping[str, int], capacity: Mapping[str, int]) -> None:
        self.n_asked += 1
        self.need, self.capacity = need, capacity
        self.asked.set()
        await self.may_proceed.wait()


def loading(work: Callable[[Host, Reservation], Awaitable[None]], *flags: str, budget: Budget = HALF) -> None:
    """Run `work` while a host loads the model. The load ends with it."""

    async def run() -> None:
        host, reservation = make(*flags), Reservation()
        host.budget, host.on_planned = (lambda: budget), reservation
        load = asyncio.ensure_future(host.load())
        try:
            await asyncio.wait_for(work(host, reservation), 120)
        finally:
            await host.close()
            load.cancel()

    asyncio.run(run())


def is_near(one: int, other: int) -> bool:
    return abs(one - other) <= max(0.02 * other, 64 * MIB)


@pytest.mark.parametrize("flags", [("-c", "8192"), ("-c", "2048", "--no-mmap", "--no-repack"), ()], ids=str)
def test_the_engine_opens_no_weights_before_it_may(flags):
    async def work(host: Host, reservation: Reservation) -> None:
        await reservation.asked.wait()
        pid = engine_of(host)
        assert reservation.capacity["host"] > reservation.need["host"] > os.path.getsize(model_path())
        await asyncio.sleep(0.5)
        assert not mapped(pid)
        assert host.model is None
        assert host.progress.text() == "waiting for memory"
        reservation.may_proceed.set()
        while host.state is not State.READY:
            await asyncio.sleep(0.01)
        assert host.progress.stage == "load"
        assert mapped(pid) or "--no-mmap" in flags
        assert cpus_of(pid) == cpus_of(
            os.getpid()
        )  # no thread is bound, so that engines do not meet on one CPU
        assert set(host.measured) == {"host"}
        assert is_near(reservation.need["host"], host.measured["host"])
        # What the system says. Pages of the file that were repacked are mapped but not needed.
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        rows = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
        assert int(rows["RssAnon"]) * 1024 <= host.measured["host"] + 64 * MIB

    loading(work, *flags)


def test_a_device_counts_by_a_name_that_all_engines_know():
    """An RPC worker's device stands in for a GPU. The second load finds its plan and opens the model only once."""
    with RpcWorker() as worker:
        name = f"RPC0[{worker.endpoint}]"

        async def work(host: Host, reservation: Reservation) -> None:
            reservation.may_proceed.set()
            while host.state is not State.READY:
                await asyncio.sleep(0.01)
            assert set(host.need) == set(host.capacity) == set(host.measured) == {name, "host"}
            assert is_near(host.need[name], host.measured[name])
            assert host.capacity[name] > host.need[name] > os.path.getsize(model_path())
            needs.append(host.need)

        needs: list[Mapping[str, int]] = []
        for _ in range(2):
            loading(work, "-c", "2048", "--rpc", worker.endpoint)
        assert needs[0] == needs[1]


def test_an_engine_that_ends_while_it_waits_leaves_nothing():
    async def work(host: Host, reservation: Reservation) -> None:
        await reservation.asked.wait()
        pid = engine_of(host)
        before = asyncio.get_running_loop().time()
        await host.close()
        assert asyncio.get_running_loop().time() - before < 5
        assert not Path(f"/proc/{pid}").exists()
        assert host._process is None

    loading(work)


def test_an_engine_that_dies_while_it_waits_is_started_again():
    async def work(host: Host, reservation: Reservation) -> None:
        await reservation.asked.wait()
        reservation.asked.clear()
        os.kill(engine_of(host), 9)
        await reservation.asked.wait()
        assert reservation.n_asked == 2
        reservation.may_proceed.set()
        while host.state is not State.READY:
            await asyncio.sleep(0.01)

    loading(work)


def test_a_model_larger_than_its_budget_fails_for_memory():
    async def work(host: Host, reservation: Reservation) -> None:
        while host.state is not State.FAILED:
            await asyncio.sleep(0.01)
        assert host.is_memory
        assert "are left for it" in host.error
        assert not reservation.asked.is_set()

    loading(work, "-c", "8192", "--no-mmap", budget=Budget(bytes_max=128 * MIB))


def test_a_small_budget_makes_the_context_smaller():
    async def work(host: Host, reservation: Reservation) -> None:
        await reservation.asked.wait()
        assert reservation.capacity == {"host": 320 * MIB}
        assert reservation.need["host"] <= 320 * MIB
        reservation.may_proceed.set()
        while host.state is not State.READY:
            await asyncio.sleep(0.01)
        assert host.model is not None
        assert 512 <= host.model.n_ctx < host.model.info.n_ctx_train

    loading(work, "-fitc", "512", budget=Budget(bytes_max=320 * MIB))


@pytest.mark.parametrize("flags", [(), ("--embedding", "--pooling", "mean")], ids=str)
def test_a_serving_engine_gets_its_share(caplog, flags):
    async def work(host: Host, reservation: Reservation) -> None:
        reservation.may_proceed.set()
        host.share(n_threads=1)  # there is no engine yet
        await reservation.asked.wait()
        host.share(n_threads=1, n_threads_batch=1)  # it is applied once the engine serves
        while host.state is not State.READY:
            await asyncio.sleep(0.01)
        host.share(1, 1, 64 * MIB)
        assert host._process is not None
        assert host._process.control is not None
        compiled = await host._process.control.compile("root ::= [a]", 1000)  # after all earlier messages
        assert compiled.n_bytes > 0

    loading(work, "-c", "2048", *flags)
    assert "a message of the front failed" not in caplog.text


def test_an_engine_without_a_budget_does_not_wait():
    async def run() -> None:
        host, reservation = make("-c", "2048"), Reservation()
        host.on_planned = reservation
        await host.load()
        assert host.state is State.READY
        assert not host.measured
        assert reservation.n_asked == 0
        await host.close()

    asyncio.run(run())
