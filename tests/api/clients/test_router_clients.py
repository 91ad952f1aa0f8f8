"""The calls that clients of llama-server's router make, replayed against a server with many models: Open WebUI and
llama.vscode after their sources, and the official clients of OpenAI and Anthropic."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.official_clients import anthropic, openai
from support.http_client import Client
from support.hub.cache import Cache
from support.hub.server import HubServer
from support.live_daemon import Live, until

PRESET = """
[*]
ctx-size = 1024
parallel = 1
warmup   = off

[chat]
model = {model}
alias = gpt-4o-mini

[other]
model = {model}
ctx-size = 512
report-context = 50000

[drowsy]
model = {model}
ctx-size = 256
sleep-idle-seconds = 1

[broken]
model = /none.gguf
"""
REPO = "org/tiny-GGUF"
HELLO = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    server = HubServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def router(tiny: str, hub: HubServer, tmp_path_factory: Any) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("router")
    preset = folder / "models.ini"
    preset.write_text(PRESET.format(model=tiny))
    hub.repos[REPO] = {"tiny.Q4_0.gguf": Path(tiny).read_bytes()}
    environ = dict(Cache(folder / "cache", hub).environ)
    with Live("--models-preset", str(preset), env=environ) as server:
        yield server.client


def status(client: Client, name: str) -> str:
    """Return the status of a model in the list, as Open WebUI and llama.vscode look it up."""
    listed = {one["id"]: one for one in client.get("/models").json["data"]}
    return str(listed[name]["status"]["value"]) if name in listed else "missing"


def unload(client: Client, name: str) -> None:
    """Unload a model that an earlier test may have loaded."""
    if status(client, name) != "unloaded":
        client.post("/models/unload", {"model": name})
    until(lambda: status(client, name) == "unloaded")


class Events:
    """A reader of GET /models/sse, as a browser's fetch() is one."""

    def __init__(self, client: Client) -> None:
        self.seen: list[dict[str, Any]] = []
        self._connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
        self._connection.request("GET", "/models/sse", headers={"Accept": "text/event-stream"})
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        assert self._response.getheader("Content-Type", "").startswith("text/event-stream")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._response:
            if line.startswith(b"data: "):
                self.seen.append(json.loads(line[6:]))

    def wait(self, model: str, matches: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first event of a model that matches."""

        def first() -> dict[str, Any] | None:
            return next((one for one in self.seen if one["model"] == model and matches(one)), None)

        found: dict[str, Any] = until(first, f"no such event of {model}")
        return found

    def wait_status(self, model: str, value: str) -> dict[str, Any]:
        return self.wait(model, lambda one: (one.get("data") or {}).get("status") == value)


@pytest.fixture
def events(router: Client) -> Events:
    return Events(router)


def test_open_webui_lists_loads_and_unloads(router: Client, events: Events) -> None:
    """It lists under /v1, and manages without it. It takes `loaded` and `sleeping` for loaded; `loading` and `unloaded`
    for not loaded; and a model without a status for loaded."""
    unload(router, "other")
    listed = router.get("/v1/models").json
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == sorted(one["id"] for one in listed["data"])
    by_id = {one["id"]: one for one in listed["data"]}
    assert {"chat", "other", "broken"} <= set(by_id)
    assert {one["status"]["value"] for one in listed["data"]} <= {"unloaded", "loading", "loaded", "sleeping"}
    assert by_id["chat"]["aliases"] == ["gpt-4o-mini"]
    failed = by_id["broken"]["status"]
    assert (failed["value"], failed["failed"], failed["exit_code"]) == ("unloaded", True, 1)
    assert "/none.gguf" in failed["reason"]

    loaded = router.post("/models/load", {"model": "other"})
    assert (loaded.status, loaded.json) == (200, {"success": True})
    events.wait_status("other", "loading")
    events.wait_status("other", "loaded")
    assert status(router, "other") == "loaded"
    again = router.post("/models/load", {"model": "other"})
    assert (again.status, again.error["message"]) == (400, "model is already running")

    unloaded = router.post("/models/unload", {"model": "other"})
    assert (unloaded.status, unloaded.json) == (200, {"success": True})
    assert events.wait_status("other", "unloaded")["data"]["exit_code"] == 0
    assert status(router, "other") == "unloaded"
    assert router.post("/models/unload", {"model": "other"}).status == 400
    assert router.post("/models/load", {"model": "none"}).status == 404
    assert router.post("/models/load", {"model": "broken"}).status == 500


def test_open_webui_unloads_what_sleeps(router: Client, events: Events) -> None:
    """It shows a sleeping model as loaded, with a button to unload it."""
    assert router.post("/models/load", {"model": "drowsy"}).status == 200
    events.wait_status("drowsy", "sleeping")
    assert status(router, "drowsy") == "sleeping"
    assert router.post("/models/unload", {"model": "drowsy"}).json == {"success": True}
    assert events.wait_status("drowsy", "unloaded")["data"]["exit_code"] == 0
    assert status(router, "drowsy") == "unloaded"
    chat = router.post("/v1/chat/completions", {"model": "drowsy", "messages": HELLO, "max_tokens": 2})
    assert chat.status == 200, chat.body


def test_open_webui_downloads_and_deletes(router: Client, events: Events) -> None:
    name = f"{REPO}:Q4_0"
    answer = router.post("/models", {"model": name})
    assert (answer.status, answer.json) == (200, {"success": True}), answer.body
    assert events.wait(name, lambda one: one["event"] == "model_status")["data"] == {"status": "downloading"}
    events.wait(name, lambda one: one["event"] == "download_finished")
    events.wait("*", lambda one: one["event"] == "models_reload")
    (entry,) = [one for one in router.get("/models").json["data"] if one["id"] == name]
    assert (entry["status"]["value"], entry["source"], entry["can_remove"]) == ("unloaded", "cache", True)
    assert router.post("/models", {"model": name}).status == 400  # it exists

    chat = router.post("/v1/chat/completions", {"model": name, "messages": HELLO, "max_tokens": 2})
    assert (chat.status, chat.json["model"]) == (200, name), chat.body
    removed = router.request("DELETE", f"/models?model={name}")
    assert (removed.status, removed.json) == (200, {"success": True}), removed.body
    events.wait(name, lambda one: one["event"] == "model_remove")
    assert status(router, name) == "missing"
    assert router.request("DELETE", "/models?model=chat").status == 500  # it is no file of the cache
    assert router.post("/models", {"model": "org/none"}).status == 400


def test_llama_vscode_adds_models_and_reads_their_context(router: Client) -> None:
    """It would prefer an array `models` to `data`; llama-server's router has none, and clients know by that it is a
    router. It reads the size of the context from `meta`, or else from /props, and must not load a model by that."""
    unload(router, "chat")
    listed = router.get("/v1/models").json
    assert "models" not in listed
    (entry,) = [one for one in listed["data"] if one["id"] == "chat"]
    assert entry["owned_by"] == "llamacpp"
    assert entry["meta"]["n_ctx_train"] > 0
    props = router.get("/props").json
    assert (props["role"], props["models_autoload"]) == ("router", True)
    asked = router.get("/props?model=chat&autoload=false")
    assert (asked.status, asked.error["type"]) == (400, "invalid_request_error")
    assert "model is not loaded" in asked.error["message"]
    assert status(router, "chat") == "unloaded"

    assert (
        router.post("/v1/chat/completions", {"model": "chat", "messages": HELLO, "max_tokens": 2}).status
        == 200
    )
    (entry,) = [one for one in router.get("/v1/models").json["data"] if one["id"] == "chat"]
    assert (entry["status"]["value"], entry["meta"]["n_ctx"]) == ("loaded", 1024)
    props = router.get("/props?model=chat&autoload=false").json
    assert props["default_generation_settings"]["n_ctx"] == 1024


def test_llama_vscode_prepares_a_completion_without_a_name(router: Client) -> None:
    """Its completions name a model. The requests before them, which only fill the cache, do not, so that they need
    `default-model`. For one model that is listed it would ask /props without a name, and use `meta` instead of 0."""
    common = {"id_slot": 0, "input_prefix": "def f(", "input_suffix": "", "input_extra": [], "prompt": "x"}
    common |= {"cache_prompt": True, "t_max_prompt_ms": 500}
    prepared = router.post("/infill", {**common, "n_predict": 0, "samplers": [], "t_max_predict_ms": 1})
    assert prepared.status == 400
    assert "default-model" in prepared.error["message"]
    samplers = {"top_k": 40, "top_p": 0.99, "samplers": ["top_k", "top_p", "infill"]}
    more = {"n_predict": 2, "n_cmpl": 1, "stream": False, "n_indent": 4, "t_max_predict_ms": 1000}
    named = router.post("/infill", {**common, **samplers, **more, "model": "chat"})
    assert (named.status, named.error.get("type")) == (501, "not_supported_error"), named.body
    assert router.get("/props").json["default_generation_settings"]["n_ctx"] == 0
    assert router.get("/health").json["status"] == "ok"


def test_the_official_client_of_openai(router: Client) -> None:
    with openai.OpenAI(
        base_url=f"http://{router.host}:{router.port}/v1", api_key="none", max_retries=0
    ) as official:
        assert {"chat", "other", "broken"} <= {one.id for one in official.models.list()}
        assert official.models.retrieve("gpt-4o-mini").id == "chat"
        messages: Any = HELLO
        chat = official.chat.completions.create(model="gpt-4o-mini", messages=messages, max_tokens=2)
        assert chat.choices[0].finish_reason == "length"
        stream = official.chat.completions.create(model="other", messages=messages, max_tokens=2, stream=True)
        assert {chunk.model for chunk in stream} == {"other"}
        with pytest.raises(openai.NotFoundError, match="model 'none' not found"):
            official.chat.completions.create(model="none", messages=messages)
        with pytest.raises(openai.NotFoundError):
            official.models.retrieve("none")
        with pytest.raises(openai.InternalServerError, match=r"/none\.gguf"):
            official.chat.completions.create(model="broken", messages=messages)
        with pytest.raises(openai.BadRequestError, match="model name is missing"):
            official.post("/chat/completions", cast_to=object, body={"messages": HELLO})


def test_the_official_client_of_anthropic(router: Client) -> None:
    with anthropic.Anthropic(
        base_url=f"http://{router.host}:{router.port}", api_key="none", max_retries=0
    ) as official:
        assert {"chat", "other", "broken"} <= {one.id for one in official.models.list()}
        messages: Any = HELLO
        told = official.messages.create(model="chat", messages=messages, max_tokens=2)
        assert (told.model, told.stop_reason) == ("chat", "max_tokens")
        with official.messages.stream(model="chat", messages=messages, max_tokens=2) as stream:
            assert stream.get_final_message().usage.output_tokens == 2
        assert official.messages.count_tokens(model="chat", messages=messages).input_tokens > 2
        assert official.models.retrieve("chat").max_input_tokens == 1024
        official.messages.create(model="other", messages=messages, max_tokens=2)
        assert {one.id: one.max_input_tokens for one in official.models.list()}["other"] == 50_000
        assert official.models.retrieve("broken").max_input_tokens is None
        with pytest.raises(anthropic.NotFoundError, match="model 'none' not found"):
            official.messages.create(model="none", messages=messages, max_tokens=2)
    for name, n_ctx in (("chat", 1024), ("other", 512)):
        entry = router.get(f"/v1/models/{name}").json
        assert entry["context_length"] == entry["meta"]["n_ctx"] == n_ctx
