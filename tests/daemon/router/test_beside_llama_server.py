"""The router beside llama-server's, over the same preset, folder and cache. Each case runs against both of them; where
llamad differs on purpose, the case says how and why."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from support.live_daemon import until
from support.many_models.calls import (
    CHAT,
    chat,
    entries,
    load,
    props,
    status,
    unload,
    unload_all,
    wait_status,
)
from support.many_models.files import Files, Router
from support.many_models.streams import Events, Stream

PRESET = """
[*]
ctx-size = 512
parallel = 1
[a]
model = {tiny}
alias = first, eins
tags = small
[b]
model = {tiny}
ctx-size = 640
temp = 0.5
[c]
model = {tiny}
ctx-size = 768
[own]
hf = org/model:Q8_0
dedup-cache-models = 1
[sleepy]
model = {tiny}
ctx-size = 896
sleep-idle-seconds = 1
"""
NAMES = ["a", "b", "c", "in-folder", "other/cached:Q4_0", "own", "sleepy"]
FIELDS = {
    "id", "aliases", "tags", "object", "owned_by", "created", "status", "architecture", "source", "can_remove",
}  # fmt: skip
RESIDENCE_SECONDS = 5  # llamad keeps a model that it has just loaded for this long


@pytest.fixture(scope="module", params=["llamad", "llama-server"])
def router(request: pytest.FixtureRequest, files: Files, start_peer: Callable[..., Router]) -> Router:
    files.write(PRESET)
    if not (files.folder / "in-folder.gguf").exists():
        files.add("in-folder.gguf")
        files.add_cached("org/model", "model-Q8_0.gguf")
        files.add_cached("other/cached", "cached-Q4_0.gguf")
    return start_peer(request.param, files, "--models-max", "2", "--no-warmup", "--slots")


@pytest.fixture
def empty(router: Router) -> None:
    unload_all(router.client)


def test_props_say_that_it_is_a_router(router: Router) -> None:
    shown = router.client.get("/props").json
    assert shown["role"] == "router"
    assert shown["max_instances"] == 2
    assert shown["models_autoload"] is True
    assert (shown["model_alias"], shown["model_path"]) == ("llama-server", "none")
    assert shown["default_generation_settings"]["n_ctx"] == 0
    # llama-server writes null for no parameters; an object with none is what its own page expects.
    assert not shown["default_generation_settings"]["params"]
    assert router.client.get("/health").json == {"status": "ok"}


def test_the_list(router: Router, empty: None) -> None:
    listed = entries(router.client)
    assert list(listed) == NAMES
    for one in listed.values():
        assert one.keys() >= FIELDS
        assert (one["object"], one["owned_by"]) == ("model", "llamacpp")
        assert one["status"]["value"] == "unloaded"
        assert "failed" not in one["status"]
        assert one["architecture"] == {"input_modalities": ["text"], "output_modalities": ["text"]}
        assert one["can_remove"] == (one["source"] == "cache")
    assert (listed["a"]["aliases"], listed["a"]["tags"]) == (["eins", "first"], ["small"])
    assert [listed[name]["source"] for name in ("a", "in-folder", "other/cached:Q4_0", "own")] == [
        "preset", "models_dir", "cache", "preset",
    ]  # fmt: skip
    assert listed["c"]["status"]["preset"].startswith("[c]\n")
    assert "ctx-size = 768\n" in listed["c"]["status"]["preset"]
    assert "--ctx-size" in listed["c"]["status"]["args"]
    assert router.client.get("/v1/models").json["data"][0]["id"] == "a"
    # What the head of a file says is shown before its first load, because users ask for it (llama-server: nothing).
    if router.is_peer:
        assert "meta" not in listed["a"]
    else:
        until(lambda: entries(router.client)["a"].get("meta", {}).get("n_ctx_train") == 16384)


def test_a_model_is_loaded_for_a_stream(router: Router, empty: None) -> None:
    assert Stream(router.client, chat("a", 8)).finish() == ("length", 8)
    one = entries(router.client)["a"]
    assert one["status"]["value"] == "loaded"
    assert (one["meta"]["n_ctx"], one["meta"]["n_vocab"]) == (512, 49152)


def test_answers_have_the_name_of_the_section(router: Router) -> None:
    answer = router.client.post(CHAT, chat("eins", 2))
    assert answer.status == 200
    # llama-server answers with the id, and llamad with the name that the client used, as OpenAI does.
    assert answer.json["model"] == ("a" if router.is_peer else "eins")


def test_endpoints_without_a_body_take_a_query(router: Router) -> None:
    shown = props(router.client, "c").json
    assert shown["model_path"].endswith("tiny.gguf")
    assert shown["default_generation_settings"]["n_ctx"] == 768
    assert router.client.get("/slots?model=c").json[0]["n_ctx"] == 768


def test_unknown_and_missing_names(router: Router) -> None:
    answer = router.client.post(CHAT, chat("unknown"))
    # OpenAI answers 404, by which clients know that the name is wrong (contract row 41). llama-server answers 400.
    assert answer.status == (400 if router.is_peer else 404)
    assert "model 'unknown' not found" in answer.error["message"]
    assert answer.error["type"] == ("invalid_request_error" if router.is_peer else "not_found_error")
    body = chat("")
    del body["model"]
    answer = router.client.post(CHAT, body)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
    assert "model name is missing from the request" in answer.error["message"]
    answer = router.client.post(CHAT, chat("small"))
    assert answer.status == (400 if router.is_peer else 404), "a tag is no name"


def test_load_and_unload(router: Router, empty: None) -> None:
    load(router.client, "first")  # an alias
    answer = router.client.post("/models/load", {"model": "a"})
    assert (answer.status, answer.error["message"]) == (400, "model is already running")
    unload(router.client, "eins")
    answer = router.client.post("/models/unload", {"model": "a"})
    assert (answer.status, answer.error["message"]) == (400, "model is not running")
    assert "failed" not in status(router.client, "a")


@pytest.mark.parametrize(("path", "code"), [("/models/load", 404), ("/models/unload", 400)])
def test_load_and_unload_of_an_unknown_model(router: Router, path: str, code: int) -> None:
    answer = router.client.post(path, {"model": "unknown"})
    assert answer.status == code
    if not (router.is_peer and code == 404):  # its HTTP library replaces the text of a 404
        assert answer.error["message"].startswith("model is not found")


def test_the_least_recently_used_of_three_leaves(router: Router, empty: None) -> None:
    for name in ("a", "b"):
        assert router.client.post(CHAT, chat(name)).status == 200
    time.sleep(0 if router.is_peer else RESIDENCE_SECONDS)
    assert router.client.post(CHAT, chat("a")).status == 200
    assert router.client.post(CHAT, chat("c")).status == 200
    loaded = {name for name, one in entries(router.client).items() if one["status"]["value"] == "loaded"}
    assert loaded == {"a", "c"}


def test_a_model_sleeps_wakes_and_is_unloaded_in_its_sleep(router: Router, empty: None) -> None:
    assert router.client.post(CHAT, chat("sleepy")).status == 200
    wait_status(router.client, "sleepy", "sleeping")
    assert props(router.client, "sleepy").json["is_sleeping"] is True
    assert "n_ctx" in entries(router.client)["sleepy"]["meta"]
    assert router.client.post(CHAT, chat("sleepy")).status == 200
    wait_status(router.client, "sleepy", "sleeping")
    unload(router.client, "sleepy")
    assert router.client.post("/models/unload", {"model": "sleepy"}).status == 400


def test_events(router: Router, empty: None) -> None:
    with Events(router.client) as events:
        load(router.client, "a")
        unload(router.client, "a")
        until(lambda: events.statuses("a")[-1:] == ["unloaded"])
        assert events.statuses("a") == ["loading", "loaded", "unloaded"]
        last = events.of("a")[-1]
        assert (last["event"], last["data"]["exit_code"]) == ("status_change", 0)
        entries(router.client, "?reload=1")
        until(lambda: [one["event"] for one in events.of("*")] == ["models_reload"])


def test_a_reload_adds_removes_and_changes_models(router: Router, files: Files, empty: None) -> None:
    assert router.client.post(CHAT, chat("b")).status == 200
    load(router.client, "a")
    try:
        files.write(PRESET.replace("[c]", "[d]").replace("temp = 0.5", "temp = 0.25"))
        assert sorted(entries(router.client)) == NAMES  # not before it is asked for
        listed = entries(router.client, "?reload=1")
        assert sorted(listed) == ["a", "b", "d", "in-folder", "other/cached:Q4_0", "own", "sleepy"]
        # Defaults of requests do not concern the engine, so llamad keeps it. llama-server unloads what has changed.
        wait_status(router.client, "b", "unloaded" if router.is_peer else "loaded")
        assert status(router.client, "a")["value"] == "loaded"  # it has not
        assert re.search(r"temp(erature)? = 0\.25\n", status(router.client, "b")["preset"])
        assert router.client.post(CHAT, chat("b")).status == 200
        assert props(router.client, "b").json["default_generation_settings"]["params"]["temperature"] == 0.25
        assert router.client.post(CHAT, chat("c")).status == (400 if router.is_peer else 404)
    finally:
        files.write(PRESET)
        assert list(entries(router.client, "?reload=1")) == NAMES


def test_a_duplicate_in_the_cache_is_hidden_but_served(router: Router, empty: None) -> None:
    assert "org/model:Q8_0" not in entries(router.client)
    assert router.client.post(CHAT, chat("org/model:Q8_0", 2)).status == 200


def test_a_model_of_the_cache_is_deleted(router: Router, files: Files, empty: None) -> None:
    path = files.add_cached("to/delete", "delete-Q4_0.gguf")
    with Events(router.client) as events:
        assert entries(router.client, "?reload=1")["to/delete:Q4_0"]["can_remove"] is True
        load(router.client, "to/delete:Q4_0")
        answer = router.client.request("DELETE", "/models?model=to/delete:Q4_0")
        assert (answer.status, answer.json) == (200, {"success": True})
        assert not path.exists()
        assert "to/delete:Q4_0" not in entries(router.client)
        until(lambda: "model_remove" in [one["event"] for one in events.of("to/delete:Q4_0")])
    for name in ("to/delete:Q4_0", "a"):
        answer = router.client.request("DELETE", f"/models?model={name}")
        assert answer.status == 500, "it is not there any more, or no model of the cache"
