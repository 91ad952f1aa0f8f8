"""A reload that concerns one of several models which share an engine: the others keep it, and no request is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.live_daemon import Live, model_path, until
from support.many_models.calls import CHAT, chat, entries, props, status
from support.many_models.day import metric
from support.many_models.files import Files
from support.many_models.processes import engine_of
from support.many_models.streams import Background, Stream

HEAD = """
[*]
ctx-size = 512
parallel = 2
warmup = off
"""
SLOW = f"[slow]\nmodel = {model_path()}\n"
FIRST = "[first]\nmodel = {tiny}\n"
SECOND = "[second]\nmodel = {tiny}\ntemp = 0.1\n"
N = 60


@pytest.fixture(scope="module")
def live(files: Files, start: Callable[..., Live]) -> Live:
    """A router with room for one engine."""
    files.write(HEAD + SLOW + FIRST + SECOND)
    return start(files, "--models-max", "1", "--metrics")


@pytest.fixture
def shared(live: Live, files: Files) -> Background:
    """Let both variants be loaded, and return a request of the first one that runs, with the id of their engine."""
    reload(live, files, FIRST + SECOND)
    until(lambda: live.client.post(CHAT, chat("first")).status == 200)
    return Background(
        partial(live.client.post, "/completion", {**chat("first", N), "prompt": "One", "n_predict": N})
    )


def reload(live: Live, files: Files, sections: str) -> dict[str, dict]:
    files.write(HEAD + SLOW + sections)
    return entries(live.client, "?reload=1")


def n_unloads(live: Live) -> float:
    return metric(live.client, "llamad:model_unloads_total", model="second")


def check(live: Live, files: Files, running: Background, pid: int, n_before: float) -> None:
    """The request has ended as it should, and the second variant is served by the same engine under its own name, which
    was not unloaded."""
    assert running.result().status == 200
    assert running.result().json["tokens_predicted"] == N
    assert live.client.post(CHAT, chat("second")).status == 200
    assert engine_of(live, files.model) == pid
    assert metric(live.client, "llamad:model_state", model="second", state="loaded") == 1
    assert n_unloads(live) == n_before


def test_a_variant_that_is_removed(live: Live, files: Files, shared: Background) -> None:
    pid, n_before = engine_of(live, files.model), n_unloads(live)
    assert "first" not in reload(live, files, SECOND)
    assert live.client.post(CHAT, chat("first")).status == 404
    check(live, files, shared, pid, n_before)
    assert metric(live.client, "llamad:model_state", model="first") == 0


def test_a_variant_that_is_wrong(live: Live, files: Files, shared: Background) -> None:
    pid, n_before = engine_of(live, files.model), n_unloads(live)
    reload(live, files, FIRST + "colour = blue\n" + SECOND)
    answer = live.client.post(CHAT, chat("first"))
    assert (answer.status, "no such flag" in answer.body.decode()) == (500, True)
    check(live, files, shared, pid, n_before)


def test_a_variant_that_needs_another_engine(live: Live, files: Files, shared: Background) -> None:
    pid, n_before = engine_of(live, files.model), n_unloads(live)
    reload(live, files, FIRST + "ctx-size = 1024\n" + SECOND)
    assert status(live.client, "first")["value"] == "unloaded"
    assert status(live.client, "second")["value"] == "loaded"
    check(live, files, shared, pid, n_before)
    until(lambda: live.client.post(CHAT, chat("first")).status == 200)
    assert (
        props(live.client, "first").json["default_generation_settings"]["n_ctx"] == 512
    )  # for each of two slots
    assert engine_of(live, files.model) != pid
    assert metric(live.client, "llamad:model_state", model="first", state="loaded") == 1


def test_requests_that_wait(live: Live, files: Files) -> None:
    """The model was never loaded when they came, so nothing had been prepared for its old defaults."""
    reload(live, files, "")
    reload(live, files, FIRST + SECOND)
    stream = Stream(live.client, chat("slow", N))
    body = {"prompt": "One", "n_predict": 2}
    first, second = (
        Background(partial(live.client.post, "/completion", {**body, "model": name}))
        for name in ("first", "second")
    )
    until(lambda: metric(live.client, "llamad:model_requests_waiting", model="first") == 2)
    reload(live, files, FIRST + "top-k = 7\n" + SECOND)
    assert stream.is_running
    assert stream.finish() == ("length", N)
    assert first.result().status == second.result().status == 200
    assert first.result().json["generation_settings"]["top_k"] == 7
    assert second.result().json["generation_settings"]["temperature"] == pytest.approx(0.1)


def test_a_request_that_waits_for_a_variant_that_is_removed(live: Live, files: Files) -> None:
    reload(live, files, FIRST + SECOND)
    stream = Stream(live.client, chat("slow", N))
    late = Background(partial(live.client.post, CHAT, chat("first")))
    until(lambda: metric(live.client, "llamad:model_requests_waiting", model="first") == 1)
    reload(live, files, SECOND)
    assert stream.finish() == ("length", N)
    assert late.result().status == 404
    assert live.client.post(CHAT, chat("second")).status == 200
    until(lambda: metric(live.client, "llamad:model_requests_waiting") == 0)
    reload(live, files, FIRST + SECOND)
    assert live.client.post("/models/unload", {"model": "second"}).status == 200  # nothing counts as running
    until(lambda: status(live.client, "second")["value"] == "unloaded")
