"""Variants that share an engine, several quantizations in a folder, the default model, and sections that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.live_daemon import Live
from support.many_models.calls import CHAT, chat, entries, props, status
from support.many_models.files import Files
from support.many_models.processes import engines_of

PRESET = """
[*]
ctx-size = 512
parallel = 1
warmup = off
default-model = calm
[calm]
model = {tiny}
temp = 0.0
[wild]
model = {tiny}
temp = 1.5
alias = wilder
[wrong]
model = {tiny}
ctx-size = many
[unknown-key]
model = {tiny}
no-such-key = 1
[nowhere]
model = {tiny}.missing
[nothing]
temp = 1
"""
LONG = {"role": "system", "content": "one two three four five six seven eight nine ten " * 4}


@pytest.fixture(scope="module")
def live(files: Files, start: Callable[..., Live]) -> Live:
    files.write(PRESET)
    for path in ("pair/m-Q4_0.gguf", "pair/m-Q8_0.gguf", "alone/m-Q4_0.gguf", "deep/er/m-Q4_0.gguf"):
        files.add(path)
    return start(files, "--slots")


def test_variants_share_one_engine_and_its_cache(live: Live, files: Files) -> None:
    body = chat("calm", 2)
    body["messages"] = [LONG, *body["messages"]]
    first = live.client.post(CHAT, body)
    assert first.status == 200
    n_first = first.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    pids = engines_of(live, files.model)
    other = live.client.post(CHAT, {**body, "model": "wild"})
    assert other.json["model"] == "wild"
    assert n_first < 10  # other tests' chats begin with the same few tokens
    n_cached = other.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert n_cached >= other.json["usage"]["prompt_tokens"] - 1
    assert engines_of(live, files.model) == pids
    assert {status(live.client, name)["value"] for name in ("calm", "wild")} == {"loaded"}


def test_variants_have_their_own_defaults(live: Live) -> None:
    shown = {name: props(live.client, name).json for name in ("calm", "wild", "wilder")}
    temperatures = {
        name: one["default_generation_settings"]["params"]["temperature"] for name, one in shown.items()
    }
    assert temperatures == {"calm": 0.0, "wild": 1.5, "wilder": 1.5}
    greedy = {"prompt": "x", "n_predict": 8, "ignore_eos": True, "seed": 1}
    texts = {
        name: live.client.post("/completion", {"model": name, **greedy}).json["content"]
        for name in ("calm", "wild")
    }
    assert texts["calm"] != texts["wild"]


def test_an_unload_of_one_variant_unloads_the_engine(live: Live) -> None:
    assert live.client.post(CHAT, chat("calm")).status == 200
    assert live.client.post("/models/unload", {"model": "wild"}).status == 200
    assert {status(live.client, name)["value"] for name in ("calm", "wild")} == {"unloaded"}
    assert live.client.post("/models/unload", {"model": "calm"}).error["message"] == "model is not running"


def test_a_request_without_a_name_is_for_the_default_model(live: Live) -> None:
    body = chat("")
    del body["model"]
    answer = live.client.post(CHAT, body)
    assert (answer.status, answer.json["model"]) == (200, "calm")
    assert live.client.get("/props").json["default_model"] == "calm"


def test_each_quantization_of_a_folder_has_a_name(live: Live) -> None:
    listed = entries(live.client)
    assert {"pair:Q4_0", "pair:Q8_0", "alone", "deep/er"} <= listed.keys()
    assert "pair" not in listed
    for name in ("pair:Q8_0", "deep/er"):
        assert live.client.post(CHAT, chat(name, 2)).status == 200
    assert Path(props(live.client, "pair:Q8_0").json["model_path"]).name == "m-Q8_0.gguf"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "ctx-size"),
        ("unknown-key", "no-such-key"),
        ("nowhere", "missing"),
        ("nothing", "model"),
    ],
)
def test_a_wrong_section_disables_its_model_only(live: Live, name: str, words: str) -> None:
    """llama-server does not start with the second, and loads the last for ever."""
    shown = status(live.client, name)
    answer = live.client.post(CHAT, chat(name))
    assert answer.status == 500, answer.body
    assert words in answer.error["message"]
    shown = status(live.client, name)
    assert (shown["value"], shown["failed"], shown["exit_code"]) == ("unloaded", True, 1)
    assert words in shown["reason"]
    assert shown["reason"] in answer.error["message"]
    live.wait_line(rf'"POST /v1/chat/completions.?" 500 .* - model={name} error=')
    answer = live.client.post("/models/load", {"model": name})
    assert answer.status in (200, 500)
    assert live.client.get("/health").json == {"status": "ok"}
    assert live.client.post(CHAT, chat("calm")).status == 200
