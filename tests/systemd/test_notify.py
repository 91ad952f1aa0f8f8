"""What systemd is told over a daemon's life: each datagram is recorded."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.fake_daemon import Faked
from support.live_daemon import Live
from support.systemd.recorder import Recorder

from llamad.engine.testing.fake import Fake
from llamad.models.host_state import State
from llamad.systemd import exit_codes, notify

SERVING = re.compile(r"serving: (\d+) of 2 slots, (\d+) waiting, (\d+) tokens/s")
FLAGS = ("-np", "2", "-c", "2048", "--drain-seconds", "60")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process told before is forgotten."""
    monkeypatch.setattr(notify, "_state", notify._State())


@pytest.fixture
def recorder(fresh: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Of this process."""
    with Recorder() as told:
        monkeypatch.setenv("NOTIFY_SOCKET", told.env["NOTIFY_SOCKET"])
        yield told


def running(told: Recorder, after: int) -> tuple[int, int]:
    """Slots and waiting requests, once a status shows that tokens come."""
    i = told.wait(lambda lines: (SERVING.match(lines.get("STATUS", "")) or [0] * 4)[3] not in (0, "0"), after)
    match = SERVING.fullmatch(told.told[i][1]["STATUS"])
    assert match is not None
    return int(match[1]), int(match[2])


def test_a_whole_life(tiny: str) -> None:
    with Recorder() as told, Live(*FLAGS, model=tiny, env=told.env) as server:
        first = told.told[0][1]
        assert first["STATUS"].startswith("loading model")
        assert int(first["EXTEND_TIMEOUT_USEC"]) >= 10_000_000
        i_ready = told.wait_for("READY", "1")
        assert told.told[i_ready][1]["STATUS"] == "serving: 0 of 2 slots, 0 waiting, 0 tokens/s"
        assert not any("EXTEND_TIMEOUT_USEC" in lines for _, lines in told.told[i_ready:])
        body = {"prompt": "x", "n_predict": -1, "ignore_eos": True}
        streams = [server.client.open_stream(body) for _ in range(3)]
        assert running(told, i_ready) == (2, 1)
        server.signal(signal.SIGTERM)
        i_stop = told.wait_for("STOPPING", "1")
        stopping = told.told[i_stop][1]
        assert stopping["STATUS"] == "draining: 3 requests running"
        assert "EXTEND_TIMEOUT_USEC" in stopping
        # And again while they run.
        told.wait(lambda lines: "EXTEND_TIMEOUT_USEC" in lines, i_stop + 1)
        for stream in streams:
            stream.close()
        assert server.wait_exit() == exit_codes.OK
        assert told.all("READY") == ["1"]
        assert told.all("STOPPING") == ["1"]
        assert told.all("WATCHDOG") == []  # nobody asked


def test_a_status_is_sent_when_it_is_new(recorder: Recorder) -> None:
    for status in ("one", "one", "two\nlines", "two lines"):
        notify.tell(status=status)
    notify.tell("WATCHDOG=1", status="two lines")
    recorder.wait_for("WATCHDOG", "1")
    assert [lines for _, lines in recorder.told] == [
        {"STATUS": "one"},
        {"STATUS": "two lines"},
        {"WATCHDOG": "1"},
    ]


def test_a_reload_is_told_with_its_time_and_its_failure_stays_in_the_status(recorder: Recorder) -> None:
    notify.reloading()
    notify.reloaded("")
    assert not recorder.told, "READY before the model serves"
    notify.ready("serving")
    notify.reloading()
    notify.reloaded("reload failed: --api-key-file")
    notify.tell(status="serving: 1 of 2 slots")
    notify.reloading()
    notify.reloaded("")
    notify.stopping("draining")
    notify.reloaded("late")
    notify.tell("X=end")
    recorder.wait_for("X", "end")
    told = [lines for _, lines in recorder.told]
    stamps = [int(lines.pop("MONOTONIC_USEC")) for lines in told if "RELOADING" in lines]
    assert 0 < stamps[0] <= stamps[1] <= recorder.told[-1][0] * 1e6
    assert told == [
        {"READY": "1", "STATUS": "serving"},
        {"RELOADING": "1"},
        {"READY": "1", "STATUS": "serving; reload failed: --api-key-file"},
        {"STATUS": "serving: 1 of 2 slots; reload failed: --api-key-file"},
        {"RELOADING": "1"},
        {"READY": "1", "STATUS": "serving: 1 of 2 slots"},
        {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "60000000", "STATUS": "draining"},
        {"X": "end"},
    ]


@pytest.mark.parametrize(
    ("state", "error", "status"),
    [
        (State.LOADING, "", "loading model"),
        (State.LOADING, "the engine ended", "loading model, because the engine ended"),
        (State.RESTARTING, "the engine ended", "loading model, because the engine ended"),
        (State.FAILED, "no memory", "failed: no memory"),
        (State.DRAINING, "", "draining: 0 requests running"),
    ],
)
def test_the_status_of_a_daemon_that_does_not_serve(state: State, error: str, status: str) -> None:
    with Faked(Fake(), load=False) as server:
        server.host.state, server.host.error = state, error
        assert server.daemon.heartbeat.status() == status
        server.host.state = State.LOADING


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": str(os.getpid())}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_whether_the_watchdog_is_for_this_process(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, said: dict[str, str], seconds: Any
) -> None:
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert notify.watchdog_seconds() == seconds


@pytest.mark.usefixtures("fresh")
def test_a_supervisor_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify.ready("serving")


@pytest.mark.usefixtures("fresh")
def test_what_systemd_has_no_room_for_comes_later(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as busy,
        socket.socket(busy.family, busy.type) as other,
    ):
        busy.bind(path)
        busy.setblocking(False)
        other.setblocking(False)
        n_sent = 0
        with contextlib.suppress(BlockingIOError):
            while other.sendto(b"X=1", path):
                n_sent += 1
        notify.ready("serving")
        notify.tell("WATCHDOG=1", status="serving: 1 of 2 slots")
        assert [busy.recv(4096) for _ in range(n_sent)] == [b"X=1"] * n_sent
        notify.tell()  # as a heartbeat without news
        assert busy.recv(4096) == b"READY=1\nSTATUS=serving: 1 of 2 slots\nWATCHDOG=1"
        notify.tell()
        with pytest.raises(BlockingIOError):
            busy.recv(4096)


def test_a_status_that_fails_does_not_starve_the_watchdog(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    with Faked(Fake()) as server:
        monkeypatch.setattr(server.daemon.heartbeat, "status", lambda: 1 // 0)
        server.daemon.heartbeat.beat()
        recorder.wait_for("WATCHDOG", "1")


@pytest.mark.parametrize("is_waiting", [False, True])
def test_the_status_counts_slots_and_who_waits(is_waiting: bool) -> None:
    with Faked(Fake(), "-np", "2") as server:
        server.fake.block(True)
        body = {"prompt": "x", "n_predict": 1}
        streams = [server.client.open_stream(body) for _ in range(3 if is_waiting else 1)]
        n_busy, n_waiting = (2, 1) if is_waiting else (1, 0)
        wanted = f"serving: {n_busy} of 2 slots, {n_waiting} waiting, 0 tokens/s"
        server.until(lambda: server.daemon.heartbeat.status() == wanted)
        server.fake.block(False)
        for stream in streams:
            stream.close()
