"""Routers with room for one model, without autoload, and with an API key, beside llama-server's."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
from support.http_client import Client
from support.live_daemon import model_path, until
from support.many_models.calls import CHAT, chat, entries, load, props, status, unload_all, wait_status
from support.many_models.files import Files, Router
from support.many_models.streams import Background, Events, Stream

PRESET = """
[*]
ctx-size = 512
parallel = 2
[slow]
model = {smol}
[b]
model = {tiny}
[c]
model = {tiny}
ctx-size = 768
[sleepy]
model = {tiny}
ctx-size = 896
sleep-idle-seconds = 1
"""
KEY = "correct horse"
N_LONG = 80  # tokens of a stream that outlives what happens beside it


def write(files: Files) -> None:
    files.write(PRESET.replace("{smol}", model_path()))


@pytest.fixture(scope="module", params=["llamad", "llama-server"])
def router(request: pytest.FixtureRequest, files: Files, start_peer: Callable[..., Router]) -> Router:
    """There is room for one model. llamad keeps one that was just loaded for 5 s, unless somebody waits too long."""
    write(files)
    more = () if request.param == "llama-server" else ("--models-wait-seconds", "1")
    return start_peer(request.param, files, "--models-max", "1", "--no-warmup", *more)


def test_a_busy_model_survives_and_three_waiters_are_one_eviction(router: Router) -> None:
    unload_all(router.client)
    with Events(router.client) as events:
        stream = Stream(router.client, chat("slow", N_LONG))
        waiters = [Background(lambda: router.client.post(CHAT, chat("b"))) for _ in range(3)]
        time.sleep(0.3)
        assert status(router.client, "slow")["value"] == "loaded"
        assert all(one.is_running for one in waiters)
        assert stream.finish() == ("length", N_LONG)
        assert [one.result().status for one in waiters] == [200] * 3
        until(lambda: events.statuses("b")[-1:] == ["loaded"])
        assert [events.statuses("slow").count(one) for one in ("loaded", "unloaded")] == [1, 1]
        assert events.statuses("b").count("loaded") == 1


def test_a_waiter_that_leaves_costs_nothing(router: Router) -> None:
    stream = Stream(router.client, chat("slow", N_LONG))
    with Events(router.client) as events:
        waiter = router.client.open_stream({"model": "b", "prompt": "x"})
        time.sleep(0.3)
        waiter.close()
        assert stream.finish() == ("length", N_LONG)
        time.sleep(1)
        assert status(router.client, "slow")["value"] == "loaded"
        assert events.statuses("slow") == []
        # llamad starts no process for it either. llama-server does not tell the statuses of one that waits.
        assert events.statuses("b") == []


def test_waiters_of_two_models_are_both_served(router: Router) -> None:
    stream = Stream(router.client, chat("slow", N_LONG))
    waiters = [Background(partial(router.client.post, CHAT, chat(name))) for name in ("b", "c")]
    assert stream.finish() == ("length", N_LONG)
    assert [one.result().status for one in waiters] == [200, 200]


@pytest.fixture(scope="module", params=["llamad", "llama-server"])
def closed(request: pytest.FixtureRequest, files: Files, start_peer: Callable[..., Router]) -> Router:
    """It loads nothing by itself and has a key, which the client sends."""
    write(files)
    headers = {"Authorization": f"Bearer {KEY}"}
    flags = ("--no-models-autoload", "--api-key", KEY, "--no-warmup")
    return start_peer(request.param, files, *flags, headers=headers)


def test_without_autoload_a_model_is_loaded_only_on_request(closed: Router) -> None:
    """No other test loads this model: what llamad knows from an earlier load it tells without the engine."""
    unload_all(closed.client)
    assert closed.client.get("/props").json["models_autoload"] is False
    for path, body in ((CHAT, chat("slow")), ("/tokenize", {"model": "slow", "content": "x"})):
        answer = closed.client.post(path, body)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert answer.error["message"].startswith("model is not loaded")
    assert props(closed.client, "slow").status == 400
    load(closed.client, "slow")
    assert closed.client.post(CHAT, chat("slow")).status == 200


def test_a_request_can_ask_for_autoload_or_against_it(closed: Router) -> None:
    unload_all(closed.client)
    if not closed.is_peer:
        load(closed.client, "b")
        unload_all(closed.client)
    for value, expected in (("false", 400), ("0", 400), ("yes", 400), ("true", 200), ("false", 200)):
        answer = closed.client.post(f"{CHAT}?autoload={value}", chat("c"))
        assert answer.status == expected, (value, answer.body)
    # What llamad knows from an earlier load it tells without the engine, so this needs no load.
    assert props(closed.client, "b", "&autoload=false").status == (400 if closed.is_peer else 200)
    assert status(closed.client, "b")["value"] == "unloaded"


def test_a_model_that_sleeps_wakes_without_autoload(closed: Router) -> None:
    load(closed.client, "sleepy")
    wait_status(closed.client, "sleepy", "sleeping")
    assert closed.client.post(CHAT, chat("sleepy")).status == 200


def test_the_key_is_needed(closed: Router) -> None:
    anybody = Client(closed.client.host, closed.client.port)
    assert anybody.get("/health").status == 200
    for answer in (
        anybody.post(CHAT, chat("b")),
        anybody.post("/models/load", {"model": "b"}),
        anybody.post("/models/unload", {"model": "b"}),
        anybody.post("/models", {"model": "a/b"}),
        anybody.request("DELETE", "/models?model=b"),
        anybody.get("/models/sse"),
        anybody.get("/models?reload=1"),
    ):
        assert (answer.status, answer.error["type"]) == (401, "authentication_error")


def test_the_list_without_a_key(closed: Router) -> None:
    """llama-server asks for the key. Here the list is public, as it is with one model, but it shows no paths."""
    anybody = Client(closed.client.host, closed.client.port)
    answer = anybody.get("/models")
    if closed.is_peer:
        assert answer.status == 401
        return
    assert answer.status == 200
    assert [one["status"].keys() for one in answer.json["data"]] == [{"value"}] * 4
    assert b".gguf" not in answer.body
    for one in entries(closed.client).values():
        assert one["status"].keys() == {"value", "args", "preset"}
        assert KEY not in str(one)
