"""The watchdog: a loop or an engine that stands still is restarted, one that is busy is not."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_daemon import Faked
from support.faults import Faults
from support.live_daemon import Live, engines
from support.systemd.holder import Holder
from support.systemd.recorder import Recorder

from llamad.engine.testing.fake import Fake
from llamad.models import host, stalls
from llamad.systemd import notify

# Far more than a busy machine delays a feed.
PATIENT_SECONDS = 20


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Of this process, which is to feed the watchdog every 50 ms."""
    monkeypatch.setattr(notify, "_state", notify._State())
    with Recorder(watchdog_seconds=0.1) as told:
        for name, value in told.env.items():
            monkeypatch.setenv(name, value)
        yield told


@pytest.fixture
def server(recorder: Recorder) -> Iterator[Faked]:
    with Faked(Fake(), "--engine-stall-seconds", "0.2") as faked:
        beating = asyncio.run_coroutine_threadsafe(faked.daemon.heartbeat.run(), faked.loop)
        yield faked
        beating.cancel()


def feeds(recorder: Recorder, n: int) -> None:
    """Wait for more of them."""
    n_before = len(recorder.told)
    for _ in range(n):
        n_before = recorder.wait_for("WATCHDOG", "1", n_before) + 1


def occupy(server: Faked) -> threading.Thread:
    """Give the engine a step that does not end."""
    server.fake.block(True)
    asking = threading.Thread(
        target=server.client.post, args=("/completion", {"prompt": "x", "n_predict": 1})
    )
    asking.start()
    server.until(lambda: server.fake.is_waiting)
    return asking


def test_a_loop_that_stands_still_does_not_feed(server: Faked, recorder: Recorder) -> None:
    feeds(recorder, 2)
    go_on = threading.Event()
    server.loop.call_soon_threadsafe(go_on.wait)
    recorder.wait_hungry(1.0)
    go_on.set()
    feeds(recorder, 2)


def test_a_long_step_is_not_stuck(recorder: Recorder) -> None:
    with Faked(Fake()) as server:  # the limit is two minutes
        beating = asyncio.run_coroutine_threadsafe(server.daemon.heartbeat.run(), server.loop)
        asking = occupy(server)
        feeds(recorder, 10)
        assert server.engine.silent_seconds() > 0
        server.fake.block(False)
        asking.join()
        beating.cancel()


def test_the_limit_is_that_of_the_steps_seen_not_of_the_time_before_the_first() -> None:
    """It was 20 times the machine's uptime: the first turn was taken for one that began at 0."""
    with Faked(Fake()) as server:
        assert server.host.silence()[0] < stalls.STALL_SECONDS_MIN
        server.client.complete("x", n_predict=2)
        assert server.host.silence()[1] == stalls.STALL_SECONDS_MIN
        assert server.engine.stats()["turn_us_max"] < stalls.STALL_SECONDS_MIN * 1e6


def test_an_engine_that_hangs_and_cannot_be_ended_stops_the_feed(
    server: Faked, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No host ends this one. For a while it is fed: the host is to act first."""
    asking = occupy(server)
    server.until(lambda: server.engine.silent_seconds() > 0.4)
    assert not server.host.is_stuck
    feeds(recorder, 2)
    monkeypatch.setattr(host, "END_SECONDS", 0.1)
    assert server.host.is_stuck
    recorder.wait_hungry(1.0)
    server.fake.block(False)
    asking.join()
    feeds(recorder, 2)


def test_an_engine_that_rests_is_not_stuck(
    server: Faked, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "END_SECONDS", 0.0)
    server.client.complete("x", n_predict=1)
    feeds(recorder, 8)  # twice its limit
    assert not server.host.is_stuck


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Faults:
    return Faults(tmp_path_factory.mktemp("faults"))


def test_an_engine_that_hangs_is_restarted_and_the_daemon_is_not(tiny: str, faults: Faults) -> None:
    with (
        Recorder(watchdog_seconds=PATIENT_SECONDS) as told,
        Live(
            *("-c", "512", "--engine-stall-seconds", "1", "--resume-after-crash", "0"),
            model=tiny,
            env={**faults.env, **told.env},
        ) as server,
    ):
        (before,) = engines(server.process.pid)
        names = {line.split(b"=")[0] for line in Path(f"/proc/{before}/environ").read_bytes().split(b"\0")}
        assert b"FAULT_FILE" in names
        assert not names & {b"NOTIFY_SOCKET", b"WATCHDOG_USEC", b"WATCHDOG_PID"}  # they are not for children
        faults.set("hang")
        assert server.client.post("/completion", {"prompt": "x", "n_predict": 4}).status == 500
        faults.set("")
        server.wait_ready()
        assert engines(server.process.pid) != [before]
        feeds(told, 1)
        assert told.hunger() < PATIENT_SECONDS
        assert told.all("READY") == ["1"]


def test_a_long_prompt_is_no_alarm() -> None:
    """Of the real model: many steps of some 100 ms."""
    with (
        Recorder(watchdog_seconds=0.5) as told,
        Live("-c", "2048", "-b", "64", "--engine-stall-seconds", "20", env=told.env) as server,
    ):
        told.wait_for("READY", "1")
        n_before, n_asked = len(told.told), 0
        while (
            sum("WATCHDOG" in lines for _, lines in told.told[n_before:]) < 4
        ):  # a fast machine reads several
            server.client.complete([1000 + n_asked] * 300, n_predict=1)
            n_asked += 1
            assert n_asked < 200
        assert told.hunger() < PATIENT_SECONDS
        assert told.all("READY") == ["1"]


def test_a_daemon_whose_loop_hangs_is_killed_with_its_stacks_and_started_again(
    tiny: str, faults: Faults, tmp_path: Path
) -> None:
    """The test is systemd: SIGABRT when the watchdog starves. The socket stays, so that clients wait."""
    flags, env = ("-c", "512"), {"WATCHDOG_USEC": "1000000", **faults.env}
    with Recorder(str(tmp_path / "notify")) as told, Holder() as holder:
        env |= told.env
        with holder.start(*flags, model=tiny, env=env) as server:
            told.wait_for("WATCHDOG", "1")
            (engine,) = engines(server.process.pid)
            faults.set("stand-still")
            told.wait_hungry(1.0)
            server.signal(signal.SIGABRT)
            assert server.wait_exit() == -signal.SIGABRT
        assert any("Fatal Python error: Aborted" in line for line in server.lines)
        faults.set("")
        with holder.start(*flags, model=tiny, env=env) as server:
            assert server.client.complete("x", n_predict=2)["tokens_predicted"] == 2
        assert not os.path.exists(f"/proc/{engine}/exe"), "the first engine is left"
