"""Models whose tags are control tokens: what they mark is parsed, and the tags are neither shown nor lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.live_daemon import Live
from support.models.bigram_model import write_bigram

PATH = "/v1/chat/completions"
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
CALL = '{"name":"f","arguments":{"k":1}}'
# "@" ends the prompt, and each piece is one token.
CHAIN = ("@", "<think>", "Hm.", "</think>", "Well.", "<tool_call>", CALL, "</tool_call>")
TEMPLATE = "{{ tools }}{# <think> <tool_call> #}@"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_tokens": 16}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    path: Path = tmp_path_factory.mktemp("markers") / "markers.gguf"
    model = write_bigram(path, special=TAGS, chain=CHAIN)
    with Live("-np", "1", "-c", "1024", "--chat-template", TEMPLATE, model=model) as live:
        yield live


def test_control_tokens_are_read(server: Live) -> None:
    choice = server.client.post(PATH, {**BODY, "tools": [TOOL]}).json["choices"][0]
    message = choice["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Well.")
    [call] = message["tool_calls"]
    assert call["function"] == {"name": "f", "arguments": '{"k":1}'}
    assert choice["finish_reason"] == "tool_calls"


def test_control_tokens_of_a_stream(server: Live) -> None:
    lines = server.client.post(PATH, {**BODY, "tools": [TOOL], "stream": True}).body.decode().split("\n\n")
    deltas = [json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in lines[:-2]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Well."
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert calls[0]["name"] == "f"
    assert "".join(call["arguments"] for call in calls) == '{"k":1}'


def test_unparsed_they_are_shown(server: Live) -> None:
    """To a client that wants the text as it was written."""
    whole = "".join(CHAIN[1:])
    fields = {"reasoning_format": "none", "parse_tool_calls": False, "tools": [TOOL]}
    assert server.client.post(PATH, {**BODY, **fields}).json["choices"][0]["message"]["content"] == whole
    # Without tools nothing is a call, and its tags are the model's words.
    plain = server.client.post(PATH, BODY).json["choices"][0]["message"]
    assert plain["content"] == f"Well.<tool_call>{CALL}</tool_call>"


def test_forced_calls_are_made_of_them(server: Live) -> None:
    """A grammar that asks for the tags is content with the tokens."""
    answer = server.client.post(PATH, {**BODY, "tools": [TOOL], "tool_choice": "required", "max_tokens": 64})
    assert answer.status == 200, answer.body
    message = answer.json["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["name"] == "f"
    assert message["content"] is None


def test_texts_have_no_markers(server: Live) -> None:
    """What is no chat shows no control tokens."""
    content = server.client.complete("@", temperature=0, n_predict=16)["content"]
    assert content == "Hm.Well." + CALL


def test_texts_that_ask_for_them(server: Live) -> None:
    """As preserved tokens, or as the trigger of a grammar: its word, or its number."""
    body = {"temperature": 0, "n_predict": 16}
    whole = "".join(CHAIN[1:])
    assert server.client.complete("@", **body, preserved_tokens=["<tool_call>"])["content"] == whole
    [number] = server.client.post("/tokenize", {"content": "<tool_call>"}).json["tokens"]
    grammar = f'root ::= "<tool_call>" {json.dumps(CALL)}'
    for trigger in ({"type": 1, "value": "<tool_call>"}, {"type": 0, "token": number}):
        lazy = {"grammar": grammar, "grammar_lazy": True, "grammar_triggers": [trigger]}
        assert server.client.complete("@", **body, **lazy)["content"] == whole.removesuffix("</tool_call>")
