"""What a request asks for beside text goes on after a crash, too: its adapter, and a tool call within its arguments."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.live_daemon import Live, engines, until
from support.models.tiny_adapters import write_lora
from support.models.tiny_kv_models import write_model

EXACT = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")  # so that logits hardly depend on the rows of a step
FLAGS = ("-np", "2", "-c", "8192", "--metrics", "--resume-after-crash", "1000", "--lora-init-without-apply")
N_EVENTS = 12  # of the stream, before the engine is killed
N_TRIES = 8  # until it is killed before the last token
NUMBERS = {"type": "array", "items": {"enum": [7, 12, 345]}, "minItems": 150, "maxItems": 150}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"numbers": NUMBERS}, "required": ["numbers"]},
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("files")
    model = str(write_model(folder / "model.gguf", "llama", np.float32))
    adapters = [write_lora(folder / f"{seed}.gguf", model, seed) for seed in (1, 2)]
    with Live(*FLAGS, *EXACT, "--lora", ",".join(adapters), model=model) as live:
        yield live


def completion(server: Live, **more: Any) -> Iterator[str]:
    body = {"prompt": "abcdefgh", "n_predict": 600, "ignore_eos": True, "temperature": 0, "stream": True}
    for event in server.client.events("/completion", body | more):
        yield event["content"]


def call(server: Live) -> Iterator[str]:
    """The arguments of a call."""
    body = {
        "messages": [{"role": "user", "content": "Add."}],
        "tools": [TOOL],
        "tool_choice": "required",
        "temperature": 0,
        "stream": True,
    }
    for event in server.client.events("/v1/chat/completions", body):
        for choice in event.get("choices", []):
            for one in choice["delta"].get("tool_calls") or ():
                yield one["function"].get("arguments", "")


def n_resumed(server: Live) -> int:
    text = server.client.get("/metrics").body.decode()
    return int(text.split("\nllamad:requests_resumed_total ")[1].split("\n")[0])


def with_a_crash(server: Live, stream: Callable[[], Iterator[str]]) -> str:
    """The text of a stream whose engine is killed in its middle."""
    for _ in range(N_TRIES):
        n_before, parts = n_resumed(server), []
        for part in stream():
            parts.append(part)
            if len(parts) == N_EVENTS:
                (pid,) = engines(server.process.pid)
                os.kill(pid, signal.SIGKILL)
        until(lambda: server.client.get("/health").status == 200, "no engine took its place")
        if n_resumed(server) > n_before:
            return "".join(parts)
    pytest.fail("every stream ended before its engine did")


def test_an_adapter_goes_on(server):
    adapted, plain = {"lora": [{"id": 1, "scale": 2.0}]}, "".join(completion(server))
    expected = "".join(completion(server, **adapted))
    assert with_a_crash(server, lambda: completion(server, **adapted)) == expected != plain


def test_a_tool_call_goes_on_within_its_arguments(server):
    expected = "".join(call(server))
    assert len(json.loads(expected)["numbers"]) == 150
    assert with_a_crash(server, lambda: call(server)) == expected
