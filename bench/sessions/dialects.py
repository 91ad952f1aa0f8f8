"""Reads requests in the three dialects of the programs, and writes the scripted model's answers, whole or streamed.

Pure functions. Only what the programs need; the script decides what is said.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from bench.sessions.script import Answer, Asked, texts

MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"
PATHS = (MESSAGES, RESPONSES, CHAT)

_numbers = itertools.count(1)


def read(path: str, body: dict[str, Any]) -> Asked:
    """Return what the script has to know of a request."""
    tools = tuple(_tool_name(one) for one in body.get("tools") or ()) + tuple(_namespaces(body))
    if path == RESPONSES:
        items = (
            body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        )
        n_calls = sum(one.get("type") == "function_call" for one in items)
        said = [one for one in items if one.get("role") in ("user", "developer", "system")]
        text = texts([one["content"] for one in said]) + (body.get("instructions") or "")
    else:
        said = [one for one in body["messages"] if one["role"] in ("user", "system", "developer")]
        n_calls = sum(_n_calls(one) for one in body["messages"])
        text = texts(body.get("system") or "") + texts([one.get("content") or "" for one in said])
    users = [texts(one.get("content") or "") for one in said if one.get("role") == "user"]
    return Asked(tools, n_calls, text, len(users), users[-1] if users else "")


def _namespaces(body: dict[str, Any]) -> dict[str, str]:
    """Return the namespaces of functions that have one, by the functions' names."""
    spaces = [one for one in body.get("tools") or () if one.get("type") == "namespace"]
    return {function["name"]: one["name"] for one in spaces for function in one["tools"]}


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))


def _n_calls(message: dict[str, Any]) -> int:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    uses = [one for one in blocks if one.get("type") == "tool_use"]
    return len(message.get("tool_calls") or ()) + len(uses)


def write(path: str, body: dict[str, Any], answer: Answer, n_prompt: int) -> tuple[str, bytes]:
    """Return the content type and the body of a response."""
    writer = {MESSAGES: _message, RESPONSES: _response, CHAT: _chat}[path]
    whole, events = writer(body, answer, n_prompt)
    if not body.get("stream"):
        return "application/json", json.dumps(whole).encode()
    lines = []
    for event in events:
        named = f"event: {event['type']}\n" if "type" in event else ""
        lines.append(f"{named}data: {json.dumps(event)}\n\n")
    if path == CHAT:
        lines.append("data: [DONE]\n\n")
    return "text/event-stream", "".join(lines).encode()


def _id(prefix: str) -> str:
    return f"{prefix}{next(_numbers):09}"


def _message(
    body: dict[str, Any], answer: Answer, n_prompt: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}]
    for name, arguments in answer.calls:
        content.append({"type": "tool_use", "id": _id("toolu_"), "name": name, "input": arguments})
    stop = "tool_use" if answer.calls else "end_turn"
    usage = {"input_tokens": n_prompt, "output_tokens": 20}
    whole = {
        "id": _id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
    return whole, list(_message_events(whole))


def _message_events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}
    for i, block in enumerate(whole["content"]):
        is_text = block["type"] == "text"
        empty: dict[str, Any] = {"text": ""} if is_text else {"input": {}}
        yield {"type": "content_block_start", "index": i, "content_block": block | empty}
        if is_text:
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_delta", "index": i, "delta": delta}
        yield {"type": "content_block_stop", "index": i}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": whole["usage"]}
    yield {"type": "message_stop"}


def _response(
    body: dict[str, Any], answer: Answer, n_prompt: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    text = {"type": "output_text", "text": answer.text, "annotations": []}
    message = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
    output: list[dict[str, Any]] = [{"id": _id("msg_"), **message}]
    spaces = _namespaces(body)
    for name, arguments in answer.calls:
        called: dict[str, Any] = {"name": name, "arguments": json.dumps(arguments), "status": "completed"}
        if name in spaces:
            called["namespace"] = spaces[name]
        output.append({"type": "function_call", "id": _id("fc_"), "call_id": _id("call_"), **called})
    usage = {
        "input_tokens": n_prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": n_prompt + 20,
    }
    whole: dict[str, Any] = {
        "id": _id("resp_"),
        "object": "response",
        "status": "completed",
        "model": body["model"],
        "output": output,
    }
    whole["usage"] = usage
    begun: dict[str, Any] = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for i, item in enumerate(output):
        events.append({"type": "response.output_item.added", "output_index": i, "item": item})
        events.append({"type": "response.output_item.done", "output_index": i, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return whole, events


def _chat(body: dict[str, Any], answer: Answer, n_prompt: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    calls = [
        {
            "id": _id("call_"),
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for name, arguments in answer.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else "stop"
    usage = {"prompt_tokens": n_prompt, "completion_tokens": 20, "total_tokens": n_prompt + 20}
    head = {"id": _id("chatcmpl-"), "created": 1, "model": body["model"]}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    delta = message | ({"tool_calls": [one | {"index": i} for i, one in enumerate(calls)]} if calls else {})
    chunk = {**head, "object": "chat.completion.chunk"}
    events = [
        chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        chunk | {"choices": [], "usage": usage},
    ]
    return whole, events
