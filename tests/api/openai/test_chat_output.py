"""What a model writes, by a script, and what a chat's client gets of it: thoughts, calls, broken calls; whole and
streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.fake_daemon import Faked

from llamad.chat.parsing.syntax.tools import types_of
from llamad.engine.testing.fake import Fake

PATH = "/v1/chat/completions"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}{# <think></think><tool_call> #}"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture(scope="module")
def server() -> Any:
    with Faked(Fake(n_ctx=2048), "--chat-template", TEMPLATE, n_ctx=2048) as made:
        yield made


def both(server: Faked, script: str, **options: Any) -> tuple[dict[str, Any], str]:
    """The message and the reason it ended, which the stream has told as well."""
    server.fake.script = script.encode()
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "temperature": 0,
        "cache_prompt": False,
        **options,
    }
    answer = server.client.post(PATH, body)
    assert answer.status == 200, answer.body
    choice = answer.json["choices"][0]
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    reason = None
    for line in server.client.post(PATH, {**body, "stream": True}).body.decode().split("\n\n")[:-2]:
        told = json.loads(line.removeprefix("data: "))["choices"][0]
        reason = told["finish_reason"]
        for name, value in told["delta"].items():
            if name == "tool_calls":
                _add_calls(message.setdefault("tool_calls", []), value)
            elif name != "role" and value:
                message[name] = message.get(name, "") + value
    assert message | {"content": message["content"] or None} == _without_ids(choice["message"])
    assert reason == choice["finish_reason"]
    return message, reason


def _add_calls(calls: list[Any], deltas: list[Any]) -> None:
    for delta in deltas:
        if delta["index"] == len(calls):
            assert delta["id"]
            calls.append({"type": delta["type"], "function": dict(delta["function"])})
        else:
            calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]


def _without_ids(message: dict[str, Any]) -> dict[str, Any]:
    message["content"] = message["content"] or None
    for call in message.get("tool_calls", ()):
        assert call.pop("id")
    return message


def test_thought(server: Faked) -> None:
    script = "<think>Hm, ä.</think>Yes."
    message, reason = both(server, script)
    assert message["reasoning_content"] == "Hm, ä."
    assert message["content"] == "Yes."
    assert reason == "stop"
    assert both(server, script, reasoning_format="none")[0]["content"] == script
    legacy = both(server, script, reasoning_format="deepseek-legacy")[0]
    assert legacy["reasoning_content"] == "Hm, ä."
    assert legacy["content"] == script


def test_calls(server: Faked) -> None:
    message, reason = both(server, f"Look:{CALL}\n{CALL}", tools=[TOOL])
    assert message["content"].strip() == "Look:"
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f", "f"]
    assert json.loads(message["tool_calls"][1]["function"]["arguments"]) == {"a": 1}
    assert reason == "tool_calls"
    alone = both(server, f"{CALL}\n{CALL}", tools=[TOOL], parallel_tool_calls=False)[0]
    assert len(alone["tool_calls"]) == 1
    # Without tools, or with none to be called, it is text.
    assert both(server, CALL)[0]["content"] == CALL
    assert both(server, CALL, tools=[TOOL], tool_choice="none")[0]["content"] == CALL


def test_cut_call(server: Faked) -> None:
    """The limit is the reason that is told, whatever was found until then."""
    message, reason = both(server, CALL, tools=[TOOL], max_tokens=len(CALL) - 20)
    assert message["tool_calls"][0]["function"]["name"] == "f"
    assert reason == "length"


@pytest.mark.parametrize(
    "script",
    [
        "<tool_call>\nnothing</tool_call>",
        '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": 5}\n</tool_call>',
        "<tool_call>",
        "<tool_call><tool_call></tool_call>",
    ],
)
def test_malformed_call_is_text(server: Faked, script: str) -> None:
    """One that is written nevertheless: the request's grammar replaces that of the calls."""
    message, reason = both(server, script, tools=[TOOL], grammar="root ::= [^\\x00]*")
    assert "tool_calls" not in message
    assert message["content"].replace("\n", "") == script.replace("\n", "")
    assert reason == "stop"


BROKEN = [
    '<tool_call>\n{"name": "f", "arguments": {"path": "/tmp',
    '<tool_call>\n{"name": "f", "arguments": {"a": 1, oops}}\n</tool_call>',
    '<tool_call>\n{"name": "f", "arguments": {"a": [1, 2}}\n</tool_call>',
    f'{CALL}\n<tool_call>\n{{"name": "f", "arguments": {{"a": 1',
]


@pytest.mark.parametrize("script", BROKEN)
def test_arguments_parse_if_the_reason_is_a_call(server: Faked, script: str) -> None:
    """What was valid is delivered, but nothing says that it may be executed: half a path is another path."""
    free = {"grammar": "root ::= [^\\x00]*"}
    message, reason = both(server, script, tools=[TOOL], **free)
    assert reason == "stop"
    last = message["tool_calls"][-1]["function"]
    assert last["name"] == "f"
    with pytest.raises(json.JSONDecodeError):
        json.loads(last["arguments"])
    asked = {"temperature": 0, "cache_prompt": False, "max_tokens": 200, **free}
    tool = {"name": "f", "input_schema": {"type": "object"}}
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], "tools": [tool], **asked}
    told = server.client.post("/v1/messages", body).json
    assert told["stop_reason"] == "end_turn"
    body = {"input": "x", "tools": [{"type": "function", "name": "f"}], **asked}
    body["max_output_tokens"] = body.pop("max_tokens")
    told = server.client.post("/v1/responses", body).json
    calls = [item["status"] for item in told["output"] if item["type"] == "function_call"]
    assert (told["status"], calls[-1], calls[:-1]) == (
        "completed",
        "incomplete",
        ["completed"] * (len(calls) - 1),
    )


def test_a_stop_string_within_a_call(server: Faked) -> None:
    script = '<tool_call>\n{"name": "f", "arguments": {"a": "one two"}}\n</tool_call>'
    message, reason = both(server, script, tools=[TOOL], stop=["two"])
    assert (message["tool_calls"][0]["function"]["arguments"], reason) == ('{"a": "one ', "stop")


@pytest.mark.parametrize(
    "script",
    [
        'Look: <tool_call>\n{"name": "f", "arguments": {"a": 2}}\n</tool_call>',
        'Look: <tool_call>\n{"name": "g", "arguments": "a"',
        "Look: <tool_call><tool_call>",
    ],
)
def test_a_call_fits_its_schema(server: Faked, script: str) -> None:
    """The text is the model's own up to the call; the call is not, where it would not fit."""
    schema = {"properties": {"a": {"const": 1}}, "required": ["a"], "type": "object"}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    message, reason = both(server, script, tools=[tool], parallel_tool_calls=False)
    assert (message["content"].strip(), reason) == ("Look:", "tool_calls")
    [call] = message["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"a": 1})
    free = 'Call <tool_cal and <think>, as {"name": 1}.'
    assert both(server, free, tools=[tool])[0]["content"] == free
    text = both(server, script, tools=[tool], parse_tool_calls=False)[0]
    assert text["content"] == script


def test_broken_utf8(server: Faked) -> None:
    server.fake.script = b"a\xff\xc3"
    body = {"messages": [{"role": "user", "content": "x"}], "temperature": 0}
    assert server.client.post(PATH, body).json["choices"][0]["message"]["content"].startswith("a\ufffd")


def test_a_schema_of_branching_references() -> None:
    """Its types are not looked for to the end, which would never come."""
    again = {"$ref": "#/properties/p"}
    schema = {"properties": {"p": {"anyOf": [again] * 1000}}}
    assert types_of(schema["properties"]["p"], schema) == frozenset()


def test_system_prompt_before_every_dialect() -> None:
    """The server's system prompt precedes chats and texts, and is no part of what is echoed."""
    with Faked(Fake(), "--chat-template", "{{ messages[0].content }}") as server:
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        text = {"prompt": "x", "max_tokens": 1, "echo": True}

        def n_prompt(path: str, body: Any) -> int:
            answer = server.client.post(path, body)
            assert answer.status == 200, answer.body
            return answer.json["usage"]["prompt_tokens"]

        before = n_prompt(PATH, chat), n_prompt("/v1/completions", text)
        system = {"system_prompt": {"prompt": "12345", "anti_prompt": "u:", "assistant_name": "a:"}}
        assert n_prompt(PATH, {**chat, **system}) == before[0] + 5
        assert n_prompt("/v1/completions", text) == before[1] + 5
        assert server.client.post("/v1/completions", text).json["choices"][0]["text"].startswith("x")
