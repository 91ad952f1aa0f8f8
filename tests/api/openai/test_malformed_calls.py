"""Calls that a model writes wrongly, over the server and in every format of llama.cpp's templates: each answer arrives,
whole and streamed, and if it ends with tool_calls, the arguments of each call are JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.chats import templates
from support.chats.formats import CALLS, TOOLS, USER, host_of, one_of_each_format, results, said
from support.chats.replayed import Chat
from support.fake_daemon import Faked

from llamad.engine.testing.fake import Fake

REASONS = {"stop", "length", "tool_calls"}
ANY = r"root ::= [\x00-\U0010FFFF]*"
N_CUTS = 6
N_PARTS = 4


def written_calls(name: str) -> str:
    """Return calls as a model of this template writes them."""
    host = host_of(templates.sources()[name])
    for kind in ("calls", "call"):
        wanted = said(kind, CALLS)
        written = Chat(host, TOOLS).written([USER], wanted, results(wanted))
        if written:
            return written
    raise AssertionError(f"{name} renders no calls")


def broken(written: str, dice: random.Random) -> Iterator[str]:
    """Yield what may become of it."""
    for _ in range(N_CUTS):
        yield written[: dice.randrange(1, len(written))]
    yield written.replace("get_weather", "unknown_function")
    yield written.replace("run", "unknown_function")
    yield written.replace("3", "{oops", 1)
    yield written.replace("Paris", 'Par"is', 1)
    yield written.replace('"', "", 1)
    yield written.replace("}", "", 1)
    at = dice.randrange(len(written))
    yield written[:at] + "\n}]</" + written[at:]
    yield written + written[: len(written) // 2]


def whole(server: Faked, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    answer = server.client.post("/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    (choice,) = answer.json["choices"]
    return choice["message"], choice["finish_reason"]


def streamed(server: Faked, body: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the message that the events of a stream make."""
    answer = server.client.post("/v1/chat/completions", {**body, "stream": True})
    assert answer.status == 200, answer.body
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    reasons = []
    for line in answer.body.decode().split("\n\n"):
        if not line.startswith("data: {"):
            continue
        event = json.loads(line.removeprefix("data: "))
        assert "error" not in event, event
        for choice in event["choices"]:
            reasons.append(choice["finish_reason"])
            delta = choice["delta"]
            for field in ("content", "reasoning_content"):
                message[field] += delta.get(field) or ""
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(message["tool_calls"]):
                    message["tool_calls"].append({"name": call["function"]["name"], "arguments": ""})
                message["tool_calls"][call["index"]]["arguments"] += call["function"].get("arguments", "")
    assert [reason for reason in reasons if reason] == reasons[-1:]
    return message, reasons[-1]


@pytest.mark.parametrize("part", range(N_PARTS))
def test_every_answer_arrives(part: int) -> None:
    for name in one_of_each_format(templates.sources())[part::N_PARTS]:
        flags = ("--chat-template-file", templates.path_of(name))
        with Faked(Fake(script=b"x", n_ctx=16384), *flags, n_ctx=16384) as server:
            answers_arrive(name, server)


def answers_arrive(name: str, server: Faked) -> None:
    # The grammar takes the place of the one that would keep calls whole.
    body = {"messages": [USER], "tools": TOOLS, "parallel_tool_calls": True, "temperature": 0, "grammar": ANY}
    written = written_calls(name)
    for script in (written, *broken(written, random.Random(name))):
        server.fake.script = script.encode()
        message, reason = whole(server, body)
        calls = [one["function"] for one in message.get("tool_calls") or ()]
        where = (name, script)
        assert reason in REASONS, where
        if reason == "tool_calls":
            assert calls, where
            for call in calls:
                assert call["name"] in ("get_weather", "run"), where
                assert isinstance(json.loads(call["arguments"]), dict), where
        if script == written:
            assert reason == "tool_calls", where
            assert [(one["name"], json.loads(one["arguments"])) for one in calls] == CALLS[: len(calls)], (
                where
            )
        in_stream, stream_reason = streamed(server, body)
        assert stream_reason == reason, where
        assert in_stream["content"] == (message["content"] or ""), where
        assert in_stream["reasoning_content"] == (message.get("reasoning_content") or ""), where
        assert [(one["name"], one["arguments"]) for one in calls] == [
            (one["name"], one["arguments"]) for one in in_stream["tool_calls"]
        ], where
    server.fake.script = written.encode()
    n_half = len(written.encode()) // 2
    assert whole(server, {**body, "max_tokens": n_half})[1] == "length", name
    assert streamed(server, {**body, "max_tokens": n_half})[1] == "length", name


def in_responses(server: Faked, *, stream: bool) -> list[Any]:
    """Return the arguments of the calls that are not marked as incomplete."""
    tools = [{"type": "function", **one["function"]} for one in TOOLS]
    body = {"input": [USER], "tools": tools, "temperature": 0, "grammar": ANY, "stream": stream}
    answer = server.client.post("/v1/responses", body)
    assert answer.status == 200, answer.body
    if not stream:
        response = answer.json
    else:
        last = [line for line in answer.body.decode().split("\n") if line.startswith("data: {")][-1]
        response = json.loads(last.removeprefix("data: "))["response"]
    assert response["status"] in ("completed", "incomplete")
    calls = [one for one in response["output"] if one["type"] == "function_call"]
    return [json.loads(one["arguments"]) for one in calls if one["status"] == "completed"]


def in_messages(server: Faked, *, stream: bool) -> list[Any]:
    """Return the inputs of an answer that ends with tool_use."""
    tools = [
        {"name": one["function"]["name"], "input_schema": one["function"]["parameters"]} for one in TOOLS
    ]
    body = {"messages": [USER], "tools": tools, "max_tokens": 500, "temperature": 0, "grammar": ANY}
    answer = server.client.post("/v1/messages", {**body, "stream": stream})
    assert answer.status == 200, answer.body
    if not stream:
        reason = answer.json["stop_reason"]
        inputs = [one["input"] for one in answer.json["content"] if one["type"] == "tool_use"]
        assert all(isinstance(one, dict) for one in inputs)
    else:
        inputs, reason, texts = [], "", {}
        for line in answer.body.decode().split("\n"):
            event = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
            assert event.get("type") != "error", event
            if event.get("type") == "content_block_start" and event["content_block"]["type"] == "tool_use":
                texts[event["index"]] = ""
            delta = event.get("delta", {})
            if delta.get("type") == "input_json_delta":
                texts[event["index"]] += delta["partial_json"]
            reason = delta.get("stop_reason", reason)
        inputs = [json.loads(text or "{}") for text in texts.values()] if reason == "tool_use" else []
    assert reason in ("end_turn", "max_tokens", "tool_use")
    return inputs if reason == "tool_use" else []


def in_ollama(server: Faked, *, stream: bool) -> list[Any]:
    options = {"temperature": 0, "grammar": ANY}
    body = {"messages": [USER], "tools": TOOLS, "options": options, "stream": stream}
    answer = server.client.post("/api/chat", body)
    assert answer.status == 200, answer.body
    lines = [json.loads(line) for line in answer.body.decode().splitlines() if line]
    assert lines[-1]["done_reason"] in ("stop", "length")
    calls = [call for line in lines for call in line["message"].get("tool_calls", ())]
    return [call["function"]["arguments"] for call in calls]


@pytest.mark.parametrize("dialect", [in_responses, in_messages, in_ollama])
def test_the_other_dialects(dialect: Any) -> None:
    name = "Qwen-Qwen3-0.6B"
    written = written_calls(name)
    flags = ("--chat-template-file", templates.path_of(name))
    with Faked(Fake(script=b"x", n_ctx=16384), *flags, n_ctx=16384) as server:
        for script in (written, *broken(written, random.Random(1))):
            server.fake.script = script.encode()
            arguments = dialect(server, stream=False)
            assert all(isinstance(one, dict) for one in arguments), script
            assert dialect(server, stream=True) == arguments, script
            if script == written:
                assert arguments == [one for _, one in CALLS]
