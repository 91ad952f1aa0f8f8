"""Ollama's API over a server with many models, through the official `ollama` package."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.clients.official_clients import ollama
from support.live_daemon import Live, until

PRESET = """
[*]
ctx-size = 512
parallel = 1
warmup   = off

[chat]
model = {model}
alias = gpt

[org/other:Q4]
model = {model}
ctx-size = 256
sleep-idle-seconds = 600
"""
HI = [{"role": "user", "content": "Hi"}]
FEW = {"num_predict": 2}


@pytest.fixture(scope="module")
def official(tiny: str, tmp_path_factory: Any) -> Iterator[Any]:
    preset = tmp_path_factory.mktemp("router") / "models.ini"
    preset.write_text(PRESET.format(model=tiny))
    with Live("--models-preset", str(preset)) as server:
        client = server.client
        yield ollama.Client(host=f"http://{client.host}:{client.port}")


def loaded(official: Any) -> list[str]:
    return sorted(one.model for one in official.ps().models)


def test_models_are_listed_and_shown_without_a_load(official: Any) -> None:
    listed = until(lambda: [one for one in official.list().models if one.size], "the heads were not read")
    assert {one.model for one in listed} == {"chat:latest", "org/other:Q4"}
    assert {one.details.family for one in listed} == {"llama"}
    shown = official.show("chat")
    assert shown.modelinfo["llama.embedding_length"] == 64
    assert "completion" in shown.capabilities
    assert loaded(official) == []
    with pytest.raises(ollama.ResponseError, match="not found") as caught:
        official.show("none")
    assert caught.value.status_code == 404


def test_requests_load_and_unload_models(official: Any) -> None:
    for name in ("chat", "chat:latest", "gpt", "gpt:latest", "hf.co/chat"):
        assert official.chat(name, HI, options=FEW).model == name
    assert loaded(official) == ["chat:latest"]
    assert "tools" in official.show("chat").capabilities
    reply = official.generate("org/other:Q4", "x", options=FEW, keep_alive="1h")
    assert reply.load_duration > 0
    assert loaded(official) == ["chat:latest", "org/other:Q4"]
    expiry = {one.model: one.expires_at.year for one in official.ps().models}
    assert expiry["chat:latest"] == 9999 > expiry["org/other:Q4"]
    official.generate("org/other:Q4", "x", options=FEW, keep_alive=0)
    assert all(one.size > 0 == one.size_vram for one in official.ps().models)
    (other,) = [one for one in official.ps().models if one.model == "org/other:Q4"]
    assert (other.expires_at - datetime.now(UTC)).total_seconds() > 3000
    assert official.chat("chat", keep_alive=0).done_reason == "unload"
    until(lambda: loaded(official) == ["org/other:Q4"])
    assert official.generate("org/other:Q4", keep_alive=0).done_reason == "unload"
    until(lambda: loaded(official) == [])
    assert official.generate("chat").done_reason == "load"
    assert loaded(official) == ["chat:latest"]


def test_unknown_models(official: Any) -> None:
    for ask in (official.generate, official.chat):
        with pytest.raises(ollama.ResponseError, match="not found") as caught:
            ask("none")
        assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="not found"):
        list(official.chat("none:latest", HI, stream=True))
