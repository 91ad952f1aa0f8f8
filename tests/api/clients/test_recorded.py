"""The requests that coding clients send, recorded from them with their texts shortened: each is served as it comes.

llama.vscode was recorded under node, with stubs for VS Code. A new recording is one more file in recorded/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.http_client import Answer, Client
from support.live_daemon import Live
from support.models import bigram_model

RECORDED = {
    path.stem: json.loads(path.read_text("utf-8")) for path in Path(__file__).parent.glob("recorded/*")
}
INFILL = sorted(name for name, one in RECORDED.items() if one["path"] == "/infill")
CHATS = sorted(set(RECORDED) - set(INFILL))
FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
IGNORED = {
    "claude_code_title": "metadata",
    "claude_code_first": "context_management, metadata",
    "claude_code_tool_result": "context_management, metadata",
    "codex_first": "client_metadata, tools.web_search",
    "codex_tool_result": "client_metadata, tools.web_search",
}
# What each dialect's stream ends with.
LAST = {
    "/v1/messages?beta=true": b'data: {"type":"message_stop"}\n\n',
    "/v1/responses": b"}}\n\n",  # the response itself
    "/v1/chat/completions": b"data: [DONE]\n\n",
}


@pytest.fixture(scope="module")
def short(tiny: str) -> Iterator[Client]:
    """Answers of a few tokens where the request has no limit."""
    with Live("-np", "1", "-c", "16384", "-n", "8", model=tiny) as server:
        yield server.client


@pytest.fixture(scope="module")
def coder(tmp_path_factory: Any) -> Iterator[Client]:
    path = bigram_model.write_bigram(tmp_path_factory.mktemp("coder") / "coder.gguf", FIM)
    with Live("-np", "1", "-c", "1024", model=path) as server:
        yield server.client


def replay(client: Client, name: str, **changed: Any) -> Answer:
    sent = RECORDED[name]
    return client.post(sent["path"], {**sent["body"], **changed}, headers=sent["headers"])


@pytest.mark.parametrize("name", CHATS)
def test_chats(short: Client, name: str) -> None:
    answer = replay(short, name)
    assert answer.status == 200, answer.body
    if RECORDED[name]["body"].get("stream"):
        assert answer.body.endswith(LAST[RECORDED[name]["path"]])
    else:
        assert answer.json["choices"][0]["finish_reason"] in ("length", "stop")
    assert b'"error":{' not in answer.body
    assert answer.headers.get("x-llamad-ignored") == IGNORED.get(name)
    whole = replay(short, name, stream=False, stream_options=None)
    assert whole.status == 200, whole.body


def test_an_image_that_a_tool_read_is_refused_for_good(short: Client) -> None:
    """Claude Code repeated the request for three minutes: it does so after any 5xx that says nothing else."""
    *earlier, last = RECORDED["claude_code_tool_result"]["body"]["messages"]
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    blocks = [{**last["content"][0], "content": [{"type": "image", "source": source}]}]
    answer = replay(short, "claude_code_tool_result", messages=[*earlier, {**last, "content": blocks}])
    assert (answer.status, answer.headers["x-should-retry"]) == (501, "false")


@pytest.mark.parametrize("name", INFILL)
def test_editors(coder: Client, name: str) -> None:
    answer = replay(coder, name)
    assert answer.status == 200, answer.body
    sent = RECORDED[name]["body"]
    results = answer.json if "n_cmpl" in sent else [answer.json]
    assert len(results) == sent.get("n_cmpl", 1)
    fields = {field for field in sent.get("response_fields", ["content"]) if field}
    assert all(fields <= set(result) for result in results)
