"""A model that cannot be loaded, or whose engine dies, fails alone and says why, while the others serve."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial

import pytest
from support.live_daemon import Live, model_path, until
from support.many_models.calls import CHAT, chat, load, props, status, wait_status
from support.many_models.files import Files
from support.many_models.processes import engine_of
from support.many_models.streams import Background, Events, Stream

PRESET = """
[*]
ctx-size = 512
parallel = 2
warmup = off
[good]
model = {root}/good.gguf
[slow]
model = {root}/slow.gguf
[short]
model = {root}/short.gguf
[odd]
model = {root}/odd.gguf
[blind]
model = {root}/good.gguf
mmproj = {root}/short.gguf
"""
BACKOFF_SECONDS = 5


@pytest.fixture(scope="module")
def live(files: Files, start: Callable[..., Live]) -> Live:
    whole = files.model.read_bytes()
    files.copy("good.gguf")
    files.copy("slow.gguf", model_path())
    (files.root / "short.gguf").write_bytes(whole[: len(whole) * 3 // 4])
    (files.root / "odd.gguf").write_bytes(whole.replace(b"llama", b"lamma", 1))
    files.write(PRESET.replace("{root}", str(files.root)))
    return start(files, "--metrics", "--slots")


def test_a_file_that_is_cut_off(live: Live, files: Files) -> None:
    with Events(live.client) as events:
        first = live.client.post(CHAT, chat("short"))
        t_first = time.monotonic()
        assert first.status == 500, first.body
        assert "it is cut short or wrong" in first.error["message"]
        shown = status(live.client, "short")
        assert (shown["value"], shown["failed"]) == ("unloaded", True)
        assert shown["exit_code"] != 0
        assert "it is cut short or wrong" in shown["reason"]
        until(lambda: events.statuses("short")[-1:] == ["unloaded"])
        last = events.of("short")[-1]
        assert last["data"]["exit_code"] == shown["exit_code"]
    # It is not tried again before the end of the back-off: the answer comes at once, and says when to come back.
    answer = live.client.post(CHAT, chat("short"))
    assert time.monotonic() - t_first < BACKOFF_SECONDS
    assert answer.error["message"] == first.error["message"]
    assert 1 <= int(answer.headers["retry-after"]) <= BACKOFF_SECONDS
    assert live.client.post(CHAT, chat("good")).status == 200
    assert live.client.get("/health").json == {"status": "ok"}
    time.sleep(max(0, t_first + BACKOFF_SECONDS + 0.2 - time.monotonic()))
    again = live.client.post(CHAT, chat("short"))
    assert (again.status, again.error["message"]) == (500, first.error["message"])
    # The operator need not wait.
    (files.root / "short.gguf").write_bytes(files.model.read_bytes())
    load(live.client, "short")
    assert "failed" not in status(live.client, "short")
    assert live.client.post(CHAT, chat("short")).status == 200


def test_what_llama_cpp_says_is_the_reason(live: Live) -> None:
    answer = live.client.post(CHAT, chat("odd"))
    assert answer.status == 500
    assert "unknown model architecture: 'lamma'" in answer.error["message"]
    shown = status(live.client, "odd")
    assert shown["reason"] == answer.error["message"]
    assert (shown["failed"], shown["exit_code"]) == (True, 1)
    live.wait_line(r'"POST /v1/chat/completions.?" 500 .* - model=odd error=.*lamma')
    health = live.client.get("/health?model=odd")
    assert health.status == 500
    assert "lamma" in health.error["message"]
    assert live.client.get("/health").status == 200


def test_a_projector_that_is_none_is_named(live: Live, files: Files) -> None:
    answer = live.client.post(CHAT, chat("blind"))
    assert answer.status == 500
    words = f"--mmproj {files.root}/short.gguf: it is not a projector for this model; the log says more"
    assert answer.error["message"] == words
    assert status(live.client, "blind")["reason"] == words


def test_an_engine_that_is_killed_delays_only_its_model(live: Live, files: Files) -> None:
    assert live.client.post(CHAT, chat("good")).status == 200
    victim = Stream(live.client, chat("slow", 400))
    pid = engine_of(live, files.root / "slow.gguf")
    os.kill(pid, signal.SIGKILL)
    assert live.client.post(CHAT, chat("good")).status == 200
    victim.finish()
    os.kill(engine_of(live, files.root / "slow.gguf"), signal.SIGKILL)
    answer = Background(partial(live.client.post, CHAT, chat("slow")))
    assert live.client.get("/health").json == {"status": "ok"}
    assert answer.result().status == 200, "the next request waits until it is loaded again"
    assert engine_of(live, files.root / "slow.gguf") != pid
    wait_status(live.client, "slow", "loaded")


def test_an_engine_that_is_killed_while_it_loads_is_started_again(live: Live, files: Files) -> None:
    path = files.root / "slow.gguf"
    live.client.post("/models/unload", {"model": "slow"})
    wait_status(live.client, "slow", "unloaded")
    answer = Background(partial(live.client.post, CHAT, chat("slow")))
    os.kill(engine_of(live, path), signal.SIGKILL)
    assert answer.result().status == 200


def test_what_is_known_of_a_model_needs_no_load(live: Live) -> None:
    assert live.client.post(CHAT, chat("good")).status == 200
    before = props(live.client, "good").json
    live.client.post("/models/unload", {"model": "good"})
    wait_status(live.client, "good", "unloaded")
    tokens = live.client.post("/tokenize", {"model": "good", "content": "some text"}).json["tokens"]
    assert tokens
    text = live.client.post("/detokenize", {"model": "good", "tokens": tokens}).json["content"]
    assert text == "some text"
    messages = chat("good")["messages"]
    body = {"model": "good", "messages": messages}
    assert "Hello" in live.client.post("/apply-template", body).json["prompt"]
    for path in (f"{CHAT}/input_tokens", "/v1/messages/count_tokens"):
        assert live.client.post(path, body).json["input_tokens"] > 0
    after = props(live.client, "good").json
    assert after["chat_template"] == before["chat_template"]
    assert after["model_path"] == before["model_path"]
    assert live.client.get("/health?model=good").status == 200
    assert live.client.get("/metrics").status == 200
    assert live.client.get("/slots?model=good").status == 200
    assert status(live.client, "good")["value"] == "unloaded"
