"""Requests that wait for a model: how long, how many, and what becomes of them when the daemon stops."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

import pytest
from support.live_daemon import Live, engines, model_path, until
from support.many_models.calls import CHAT, chat, status, unload_all
from support.many_models.files import Files
from support.many_models.processes import engine_of
from support.many_models.streams import Background, Stream

PRESET = """
[*]
ctx-size = 512
parallel = 2
warmup = off
[slow]
model = {root}/slow.gguf
[a-variant]
model = {root}/slow.gguf
temp = 0.5
[b]
model = {root}/b.gguf
[hasty]
model = {root}/b.gguf
ctx-size = 768
request-timeout = 0.5
"""
N = 60


@pytest.fixture(scope="module")
def written(files: Files) -> Files:
    files.copy("slow.gguf", model_path())
    files.copy("b.gguf")
    files.write(PRESET.replace("{root}", str(files.root)))
    return files


@pytest.fixture(scope="module")
def live(written: Files, start: Callable[..., Live]) -> Live:
    return start(written, "--models-max", "1", "--models-queue-max", "2", "--models-wait-seconds", "5")


def test_a_deadline_while_it_waits(live: Live) -> None:
    stream = Stream(live.client, chat("slow", N))
    t_start = time.monotonic()
    answer = live.client.post(CHAT, chat("hasty"))
    assert 0.4 < time.monotonic() - t_start < 5
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert "'hasty' was not loaded before the request's deadline" in answer.error["message"]
    assert stream.finish() == ("length", N)
    assert status(live.client, "slow")["value"] == "loaded"  # nobody waits any more


def test_too_many_waiters(live: Live) -> None:
    stream = Stream(live.client, chat("slow", N))
    waiters = [Background(partial(live.client.post, CHAT, chat("b"))) for _ in range(4)]
    until(lambda: sum(one.is_running for one in waiters) == 2, "the third and the fourth are not refused")
    assert stream.finish() == ("length", N)
    answers = sorted((one.result() for one in waiters), key=lambda one: int(one.status))
    assert [one.status for one in answers] == [200, 200, 429, 429]
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert "2 requests wait for the model 'b' already" in answers[-1].error["message"]


def test_an_unload_while_a_model_loads(live: Live, written: Files) -> None:
    """The request that waited is told so; llama-server would kill the model and call that a failure."""
    path = written.root / "slow.gguf"
    unload_all(live.client)
    answer = Background(partial(live.client.post, CHAT, chat("slow")))
    pid = engine_of(live, path)
    os.kill(pid, signal.SIGSTOP)
    assert status(live.client, "slow")["value"] == "loading"
    assert live.client.post("/models/unload", {"model": "slow"}).status == 200
    assert answer.result().status == 503
    assert "the model 'slow' was unloaded while the request waited" in answer.result().error["message"]
    os.kill(pid, signal.SIGCONT)
    until(lambda: pid not in engines(live.process.pid))
    shown = status(live.client, "slow")
    assert (shown["value"], shown.get("failed")) == ("unloaded", None)


def test_sigterm_while_one_runs_one_loads_and_one_waits(written: Files) -> None:
    flags = (*written.flags, "--models-max", "2", "--drain-seconds", "60")
    with Live(*flags, env=written.environ) as server:
        assert server.client.post(CHAT, chat("b")).status == 200
        stream = Stream(server.client, chat("slow", N))
        waiting = Background(partial(server.client.post, CHAT, chat("hasty")))
        time.sleep(0.1)
        server.signal(signal.SIGTERM)
        answer = waiting.result()
        assert (answer.status, answer.error["message"]) == (503, "The server is shutting down")
        assert stream.is_running
        assert stream.finish() == ("length", N)
        assert server.wait_exit() == 0


def test_sigterm_while_a_model_loads(written: Files) -> None:
    with Live(*written.flags, "--drain-seconds", "5", env=written.environ) as server:
        loading = Background(partial(server.client.post, CHAT, chat("slow")))
        pid = engine_of(server, written.root / "slow.gguf")
        os.kill(pid, signal.SIGSTOP)  # it would take for ever
        t_start = time.monotonic()
        server.signal(signal.SIGTERM)
        answer = loading.result()
        assert (answer.status, answer.error["message"]) == (503, "The server is shutting down")
        assert server.wait_exit() == 0
        assert time.monotonic() - t_start < 30
        until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_one_client_does_not_take_the_whole_queue(written: Files) -> None:
    keys = ({"Authorization": f"Bearer {key}"} for key in ("alice", "bob"))
    alice, bob = keys
    flags = (*written.flags, "--models-max", "1", "--models-queue-max", "4", "--api-key", "alice,bob")
    with Live(*flags, env=written.environ) as server:
        server.client.headers |= alice
        stream = Stream(server.client, chat("slow", N))
        waiters = [Background(partial(server.client.post, CHAT, chat("b"))) for _ in range(4)]
        until(lambda: sum(one.is_running for one in waiters) == 3, "the fourth is not refused")
        other = Background(partial(server.client.post, CHAT, chat("b"), headers=bob))
        stream.finish()
        answers = sorted((one.result() for one in waiters), key=lambda one: int(one.status))
        assert [one.status for one in answers] == [200, 200, 200, 429]
        assert "a larger --models-queue-max" in answers[-1].error["message"]
        assert other.result().status == 200


def test_variants_are_one_engine_in_the_load_report(written: Files) -> None:
    preset = written.preset.read_text() + f"[cool]\nmodel = {written.root}/slow.gguf\ntemp = 0.1\n"
    written.write(preset)
    with Live(*written.flags, env=written.environ) as server:
        stream = Stream(server.client, chat("slow", N))
        report = server.client.get("/v1/loads").json
        assert sorted(one["model"] for one in report["loads"]) == ["a-variant", "cool", "slow"]
        assert report["aggregate"]["total_running_reqs"] == 1
        assert report["aggregate"]["avg_utilization"] == 0.5
        stream.finish()
