"""Nothing cuts a request that runs: neither an eviction, nor an unload, sleep or a reload. The model admits nothing
new, finishes and leaves. llama-server cuts requests at an unload and at a reload."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from support.live_daemon import Live, model_path, until
from support.many_models.calls import CHAT, chat, entries, props, status, wait_status
from support.many_models.day import metric
from support.many_models.files import Files
from support.many_models.streams import Background, Stream

from llamad.models.fleet.model import State

PRESET = """
[*]
ctx-size = 512
parallel = 2
warmup = off
[slow]
model = {smol}
sleep-idle-seconds = 1
[b]
model = {tiny}
"""
N = 60


@pytest.fixture(scope="module")
def live(files: Files, start: Callable[..., Live]) -> Live:
    """There is room for one model, and whoever waits is late at once, so that busy models make room."""
    files.write(PRESET.replace("{smol}", model_path()))
    return start(files, "--models-max", "1", "--models-wait-seconds", "0", "--metrics")


def n_requests(live: Live) -> float:
    """The requests of the slow model that its engine has, running or waiting for a slot."""
    kinds = ("llamacpp:requests_processing", "llamacpp:requests_deferred")
    return sum(metric(live.client, kind, model="slow") for kind in kinds)


def both(live: Live) -> tuple[Stream, Background]:
    """A stream and a chat without one, which the model has admitted."""
    stream = Stream(live.client, chat("slow", N))
    answer = Background(partial(live.client.post, CHAT, chat("slow", N)))
    until(lambda: n_requests(live) == 2 or not answer.is_running)
    return stream, answer


def check(stream: Stream, answer: Background) -> None:
    assert stream.finish() == ("length", N)
    assert answer.result().status == 200
    assert answer.result().json["usage"]["completion_tokens"] == N


def test_an_eviction(live: Live) -> None:
    running = both(live)
    other = Background(partial(live.client.post, CHAT, chat("b")))
    time.sleep(0.2)
    late = Background(partial(live.client.post, CHAT, chat("slow")))  # it waits until its model comes back
    time.sleep(0.2)
    assert running[0].is_running
    assert other.is_running
    assert late.is_running
    check(*running)
    assert other.result().status == 200
    assert late.result().status == 200


def test_an_unload(live: Live) -> None:
    running = both(live)
    assert live.client.post("/models/unload", {"model": "slow"}).status == 200
    late = Background(partial(live.client.post, CHAT, chat("slow")))
    time.sleep(0.2)
    assert running[0].is_running
    assert late.is_running  # it comes after the unload, so the model is loaded again for it
    check(*running)
    assert late.result().status == 200


def test_an_unload_with_a_request_that_must_not_load_the_model(live: Live) -> None:
    """It waits, because the model may still be kept, but the model is not loaded again for it."""
    running = both(live)
    assert live.client.post("/models/unload", {"model": "slow"}).status == 200
    late = Background(partial(live.client.post, f"{CHAT}?autoload=false", chat("slow")))
    time.sleep(0.2)
    assert late.is_running
    check(*running)
    assert late.result().status == 400
    assert late.result().error["message"].startswith("model is not loaded")
    wait_status(live.client, "slow", "unloaded")
    assert metric(live.client, "llamad:model_requests_waiting") == 0


def test_a_load_that_takes_back_an_unload(live: Live) -> None:
    def n_unloads() -> float:
        return metric(live.client, "llamad:model_unloads_total", model="slow", reason="unloaded")

    running = both(live)
    n_before = n_unloads()
    assert live.client.post("/models/unload", {"model": "slow"}).status == 200
    assert live.client.post("/models/load", {"model": "slow"}).json == {"success": True}
    again = live.client.post("/models/load", {"model": "slow"})
    assert (again.status, again.error["message"]) == (400, "model is already running")
    check(*running)
    assert live.client.post(f"{CHAT}?autoload=false", chat("slow")).status == 200
    assert n_unloads() == n_before


def test_sleep(live: Live) -> None:
    running = both(live)
    check(*running)
    assert status(live.client, "slow")["value"] == "loaded"
    wait_status(live.client, "slow", "sleeping")
    assert live.client.post(CHAT, chat("slow")).status == 200


def test_a_reload_with_other_settings(live: Live, files: Files) -> None:
    running = both(live)
    before = files.preset.read_text()
    files.write(before.replace("[slow]", "[slow]\ntop-k = 7").replace("parallel = 2", "parallel = 1"))
    assert "top-k = 7" in entries(live.client, "?reload=1")["slow"]["status"]["preset"]
    late = Background(partial(live.client.post, CHAT, chat("slow")))
    until(lambda: metric(live.client, "llamad:model_requests_waiting", model="slow") == 1)
    # Two engines have the model's name: one finishes, the other waits for its place.
    assert metric(live.client, "llamad:model_state", model="slow", state="draining") == 1
    assert sum(metric(live.client, "llamad:model_state", model="slow", state=one) for one in State) == 2
    assert running[0].is_running
    check(*running)
    assert late.result().status == 200
    assert metric(live.client, "llamad:model_unloads_total", model="slow", reason="reloaded") == 1
    assert "slow (" not in live.client.get("/metrics").body.decode()
    live.wait_line("unloading slow: its settings have changed")
    assert not any("slow (" in line for line in live.lines)
    assert props(live.client, "slow").json["default_generation_settings"]["params"]["top_k"] == 7


def test_a_reload_without_the_model(live: Live, files: Files) -> None:
    running = both(live)
    before = files.preset.read_text()
    files.write(before.replace("[slow]", "[other]"))
    assert "slow" not in entries(live.client, "?reload=1")
    assert live.client.post(CHAT, chat("slow")).status == 404
    assert running[0].is_running
    check(*running)
    files.write(before)
    assert "slow" in entries(live.client, "?reload=1")
    until(lambda: live.client.post(CHAT, chat("slow")).status == 200)
