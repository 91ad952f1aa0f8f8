"""The lists of models, embeddings and keep_alive through the official `ollama` package, over one model."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from support.clients.official_clients import ollama
from support.fake_daemon import Faked
from support.live_daemon import Live, until
from support.models import bert_reference, bert_weights

from llamad.api.ollama.keep_alive import seconds
from llamad.api.request.errors import ApiError
from llamad.engine.testing.fake import Fake

FEW = {"num_predict": 1}


def client_of(client: Any) -> Any:
    return ollama.Client(host=f"http://{client.host}:{client.port}")


@pytest.fixture(scope="module")
def faked() -> Iterator[Faked]:
    with Faked(Fake(script=b"Yes."), "--chat-template", "chatml", "-a", "smol,other") as made:
        yield made


def test_lists(faked: Faked) -> None:
    official = client_of(faked.client)
    (listed,) = official.list().models
    (loaded,) = official.ps().models
    assert listed.model == loaded.model == loaded.name == "smol:latest"
    assert listed.digest == loaded.digest
    assert len(listed.digest) == 64
    assert (listed.size, listed.details.format, listed.details.parameter_size) == (4000, "gguf", "1K")
    assert loaded.context_length == faked.served.described().n_ctx_slot
    assert (loaded.size, loaded.size_vram) == (4000, 0)
    faked.served.host.has_device = True
    assert official.ps().models[0].size_vram == 4000
    faked.served.host.measured = {"CUDA0": 6000, "host": 500}
    (loaded,) = official.ps().models
    assert (loaded.size, loaded.size_vram) == (6500, 6000)
    faked.served.host.has_device, faked.served.host.measured = False, {}
    assert loaded.expires_at.year == 9999
    version = faked.client.get("/api/version").json["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)


def test_show(faked: Faked) -> None:
    official = client_of(faked.client)
    for name in ("smol", "smol:latest", "other"):
        shown = official.show(name)
        assert shown.capabilities == ["completion", "tools"]
        assert "<|im_start|>" in shown.template
        assert shown.modelinfo["general.parameter_count"] == 1000
        assert "temperature 0.8" in shown.parameters
    assert faked.client.post("/api/show", {"name": "smol"}).status == 200
    missing = faked.client.post("/api/show", {})
    assert (missing.status, missing.json) == (400, {"error": '"model" is missing'})


def test_every_name_is_served_and_echoed(faked: Faked) -> None:
    for name in ("smol", "smol:latest", "llama3.2:3b"):
        assert client_of(faked.client).generate(name, "x").model == name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (0, 0),
        (2.5, 2.5),
        (-1, math.inf),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("300ms", 0.3),
        ("-1m", math.inf),
        ("0", 0),
        ("60", 60),
        (1e300, math.inf),
        ("99999999h", math.inf),
    ],
)
def test_durations(value: Any, expected: float | None) -> None:
    assert seconds(value) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("value", ["", "m", "5 m", "5x", "1h-3m", "soon", "5m5", "nan", "inf"])
def test_what_is_no_duration(value: str) -> None:
    with pytest.raises(ApiError, match="keep_alive"):
        seconds(value)


def test_no_client_lets_the_model_of_others_sleep(faked: Faked) -> None:
    """Without --sleep-idle-seconds the model stays, and a request that wants less is told so."""
    body = {"model": "smol", "prompt": "x", "stream": False, "options": FEW}
    for value in (0, "0s", "5m"):
        reply = faked.client.post("/api/generate", body | {"keep_alive": value})
        assert reply.headers["x-llamad-ignored"] == "keep_alive"
        loads = faked.client.post("/api/chat", {"model": "smol", "keep_alive": "1s"})
        assert loads.headers["x-llamad-ignored"] == "keep_alive"
    for longer in (-1, "-1m", None):
        reply = faked.client.post("/api/generate", body | {"keep_alive": longer})
        assert "x-llamad-ignored" not in reply.headers
    official = client_of(faked.client)
    for ask in (official.generate, official.chat):
        with pytest.raises(ollama.ResponseError, match="this server has only one") as caught:
            ask("smol", keep_alive=0)
        assert caught.value.status_code == 400
    assert official.ps().models[0].expires_at.year == 9999


def test_keep_alive_lets_a_model_sleep_later(tiny: str) -> None:
    """The longest wish counts until the model sleeps, whatever later requests say."""
    flags = ("-np", "1", "-c", "512", "--no-warmup", "--embedding", "-a", "smol")
    with Live(*flags, "--sleep-idle-seconds", "1", model=tiny) as live:
        official = client_of(live.client)

        def sleeps() -> bool:
            return bool(live.client.get("/props").json["is_sleeping"])

        official.generate("smol", "x", options=FEW, keep_alive="3s")
        official.chat("smol", [{"role": "user", "content": "x"}], options=FEW)
        t_asked = time.monotonic()
        official.embed("smol", "x", keep_alive=0)
        until(sleeps)
        assert time.monotonic() - t_asked >= 3
        assert official.ps().models == []
        assert official.list().models[0].model == "smol:latest"
        assert official.chat("smol").done_reason == "load"
        until(sleeps)  # the wish was for that one load
        for value in ("1h", "0s", "2s"):
            official.generate("smol", "x", options=FEW, keep_alive=value)
            left = official.ps().models[0].expires_at - datetime.now(UTC)
            assert 3300 < left.total_seconds() <= 3601
        assert official.chat("smol", keep_alive="99999999h").done_reason == "load"
        assert official.ps().models[0].expires_at.year == 9999
        assert official.chat("smol", keep_alive=-1).done_reason == "load"
        assert official.ps().models[0].expires_at.year == 9999
        time.sleep(2.5)
        assert not sleeps()


@pytest.fixture(scope="module")
def embedding() -> Iterator[Any]:
    model = bert_reference.cached_gguf(bert_weights.minilm())
    with Live("--embedding", "-a", "minilm", model=model) as server:
        yield server.client


def test_embed(embedding: Any) -> None:
    official = client_of(embedding)
    reply = official.embed("minilm", ["hello", "hello world"])
    assert reply.model == "minilm"
    assert reply.prompt_eval_count == 7
    assert reply.total_duration > reply.load_duration >= 0
    data = embedding.post("/v1/embeddings", {"input": ["hello", "hello world"]}).json["data"]
    for one, other in zip(reply.embeddings, data, strict=True):
        assert np.allclose(one, other["embedding"], atol=1e-6)
        assert np.linalg.norm(one) == pytest.approx(1)
    (short,) = official.embed("minilm", "hello", dimensions=8).embeddings
    assert len(short) == 8
    assert np.linalg.norm(short) == pytest.approx(1)
    older = np.array(official.embeddings("minilm", "hello").embedding)
    assert np.allclose(older / np.linalg.norm(older), reply.embeddings[0], atol=1e-6)
    assert official.show("minilm").capabilities == ["embedding"]
    with pytest.raises(ollama.ResponseError) as caught:
        official.generate("minilm", "x")
    assert caught.value.status_code == 501


def test_a_long_text_loses_its_end_but_not_its_last_special_token(embedding: Any) -> None:
    official = client_of(embedding)
    tokens = embedding.post("/tokenize", {"content": "word " * 600, "add_special": True}).json["tokens"]
    reply = official.embed("minilm", "word " * 600)
    assert reply.prompt_eval_count == 512
    cut = [*tokens[:511], tokens[-1]]
    (same,) = embedding.post("/v1/embeddings", {"input": cut}).json["data"]
    assert np.allclose(reply.embeddings[0], same["embedding"], atol=1e-6)
    with pytest.raises(ollama.ResponseError, match="602 tokens"):
        official.embed("minilm", "word " * 600, truncate=False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": 5}, '"input" must be a string or an array of strings'),
        ({"input": [5]}, '"input" must be a string or an array of strings'),
        ({"input": "a", "dimensions": 9999}, '"dimensions" must be at most 384'),
        ({"input": "a", "keep_alive": "x"}, '"keep_alive" must be'),
    ],
)
def test_wrong_embeddings(embedding: Any, body: dict[str, Any], message: str) -> None:
    reply = embedding.post("/api/embed", {"model": "m", **body})
    assert reply.status == 400
    assert message in reply.json["error"]


def test_options_do_not_matter_for_embeddings(embedding: Any) -> None:
    reply = embedding.post("/api/embed", {"input": "a", "options": {"num_ctx": 5, "seed": None}})
    assert reply.headers["x-llamad-ignored"] == "options.num_ctx"


def test_a_server_without_embeddings(faked: Faked) -> None:
    reply = faked.client.post("/api/embed", {"input": "a"})
    assert reply.status == 501
    assert "--embeddings" in reply.json["error"]
