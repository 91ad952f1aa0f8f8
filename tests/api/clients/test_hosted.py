"""What only a hosted service has never fails a request: it is left out, and named in a header and a log line."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.chats.forced_calls import CALL_MAX

from llamad.api.request.ignored_fields import HEADER, NAMES_MAX, LeftOut

NATIVE, CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    "/completion",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
HELLO = [{"role": "user", "content": "Say hello."}]
BODIES: dict[str, dict[str, Any]] = {
    NATIVE: {"prompt": "Hello", "n_predict": 4},
    CHAT: {"messages": HELLO, "max_tokens": 4},
    COMPLETIONS: {"prompt": "Hello", "max_tokens": 4},
    RESPONSES: {"input": "Say hello.", "max_output_tokens": 4},
    MESSAGES: {"messages": HELLO, "max_tokens": 4},
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
BLOCKS = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rivers"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "redacted_thinking", "data": "AAAA"},
    {"type": "text", "text": "The Rhine."},
]
ITEMS = [
    {"role": "user", "content": "A river?"},
    SEARCHED,
    {"type": "local_shell_call", "call_id": "a", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "local_shell_call_output", "call_id": "a", "output": "README"},
    {"type": "custom_tool_call", "call_id": "b", "name": "patch", "input": "x"},
    {"type": "compaction", "encrypted_content": "AAAA"},
    {"role": "user", "content": "Say it."},
]

LEFT_OUT: list[tuple[str, dict[str, Any], str]] = [
    (MESSAGES, {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, "context_management"),
    (MESSAGES, {"container": {"skills": []}, "mcp_servers": [{"type": "url"}]}, "container, mcp_servers"),
    (MESSAGES, {"metadata": {"user_id": "a"}, "service_tier": "auto"}, "metadata"),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.web_search_20250305"),
    (
        MESSAGES,
        {"messages": [*HELLO, {"role": "assistant", "content": BLOCKS}, *HELLO]},
        "messages.server_tool_use, messages.web_search_tool_result, messages.redacted_thinking",
    ),
    (
        MESSAGES,
        {"messages": [*HELLO, {"role": "assistant", "content": BLOCKS[:1]}, *HELLO]},
        "messages.server_tool_use",
    ),
    (CHAT, {"store": True, "metadata": {"a": "b"}, "user": {"name": "A"}}, "metadata, user, store"),
    (CHAT, {"verbosity": "low", "prediction": {"type": "content", "content": "x"}}, "prediction, verbosity"),
    (CHAT, {"web_search_options": {"a": 1}, "service_tier": "flex"}, "service_tier, web_search_options"),
    (CHAT, {"web_search_options": {}}, "web_search_options"),
    (CHAT, {"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "tools.custom"),
    (NATIVE, {"verbosity": "low", "web_search_options": {}}, "verbosity, web_search_options"),
    (COMPLETIONS, {"prediction": {"type": "content", "content": "x"}}, "prediction"),
    (COMPLETIONS, {"user": {"name": "A"}, "safety_identifier": "a"}, "safety_identifier, user"),
    (RESPONSES, {"tools": [{"type": "web_search"}, {"type": "local_shell"}]}, "tools.web_search, tools.local_shell"),
    (RESPONSES, {"tools": [{"type": "namespace", "name": "a", "tools": [{"type": "custom"}]}]}, "tools.custom"),
    (RESPONSES, {"text": {"verbosity": "low"}, "include": ["web_search_call.results"]},
     "include.web_search_call.results, text.verbosity"),
    (RESPONSES, {"truncation": "auto", "background": True}, "background, truncation"),
    (RESPONSES, {"prompt_cache_options": {"a": 1}, "store": None}, "prompt_cache_options"),
    (
        RESPONSES,
        {"input": ITEMS},
        "input.web_search_call, input.local_shell_call, input.local_shell_call_output, input.custom_tool_call,"
        " input.compaction",
    ),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "more", "named"), LEFT_OUT)
def test_left_out_and_named(live: Any, path: str, more: dict[str, Any], named: str, stream: bool) -> None:
    answer = live.client.post(path, {**BODIES[path], **more, "stream": stream})
    assert answer.status == 200, answer.body
    assert answer.headers[HEADER.lower()] == named
    live.wait_line(f"request {answer.headers['x-request-id']}: .*: {re.escape(named)}$")


NEUTRAL: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"store": False, "metadata": {}, "user": "a", "service_tier": "auto", "verbosity": "medium"}),
    (COMPLETIONS, {"user": "a"}),
    (NATIVE, {"verbosity": "medium", "web_search_options": None}),
    (RESPONSES, {"truncation": "disabled", "background": False, "include": ["reasoning.encrypted_content"]}),
    (MESSAGES, {"service_tier": "auto", "mcp_servers": [], "left_out": ["a"]}),
    (CHAT, {"left_out": 1, "metadata": None}),
]


@pytest.mark.parametrize(("path", "more"), NEUTRAL)
def test_what_asks_for_nothing_is_not_named(client: Any, path: str, more: dict[str, Any]) -> None:
    answer = client.post(path, {**BODIES[path], **more})
    assert answer.status == 200, answer.body
    assert HEADER.lower() not in answer.headers


def test_the_other_tools_stay(client: Any) -> None:
    """Beside a left-out tool, a function can be forced as ever."""
    function = {"name": "get_weather", "parameters": PARAMETERS}
    tools = [{"type": "web_search"}, {"type": "function", "function": function}]
    answer = client.post(
        CHAT, {**BODIES[CHAT], "tools": tools, "tool_choice": "required", "max_tokens": CALL_MAX}
    )
    assert answer.status == 200, answer.body
    assert answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
    assert answer.headers[HEADER.lower()] == "tools.web_search"


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FORCED: list[tuple[str, dict[str, Any]]] = [
    (MESSAGES, {"tools": [SEARCH], "tool_choice": {"type": "any"}}),
    (MESSAGES, {"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}),
    (RESPONSES, {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
    (RESPONSES, {"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}),
    (RESPONSES, {"tools": [{"type": "web_search"}], "tool_choice": {
        "type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]}}),
    (CHAT, {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
    (CHAT, {"tools": [{"type": "custom", "custom": {"name": "web_search"}}],
            "tool_choice": {"type": "custom", "custom": {"name": "web_search"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "more"), FORCED)
def test_a_choice_of_what_was_left_out_is_an_error(client: Any, path: str, more: dict[str, Any]) -> None:
    answer = client.post(path, {**BODIES[path], **more})
    assert answer.status == 400, answer.body
    assert '"tool_choice"' in answer.json["error"]["message"]
    assert "left out" in answer.json["error"]["message"]


@pytest.mark.parametrize("kind", ["image", "document", "audio"])
def test_media_is_a_501(client: Any, kind: str) -> None:
    block = {"type": kind, "source": {"type": "base64", "data": "AAAA"}}
    body = {**BODIES[MESSAGES], "messages": [{"role": "user", "content": [block]}]}
    answer = client.post(MESSAGES, body)
    assert answer.status == 501
    assert kind in answer.json["error"]["message"]


def test_documents_and_results_with_text_are_read(client: Any) -> None:
    document = {
        "type": "document",
        "title": "Rivers",
        "source": {"type": "text", "data": "The Rhine is long."},
    }
    found = {
        "type": "search_result",
        "title": "T",
        "source": "S",
        "content": [{"type": "text", "text": "Found."}],
    }
    blocks = [document, found, {"type": "text", "text": "Which?"}]
    bare = client.post(MESSAGES + "/count_tokens", {"messages": [{"role": "user", "content": blocks[2:]}]})
    whole = client.post(MESSAGES + "/count_tokens", {"messages": [{"role": "user", "content": blocks}]})
    assert whole.json["input_tokens"] >= bare.json["input_tokens"] + 8
    answer = client.post(MESSAGES, {**BODIES[MESSAGES], "messages": [{"role": "user", "content": blocks}]})
    assert answer.status == 200
    assert HEADER.lower() not in answer.headers


def test_names_cannot_break_out_of_the_header() -> None:
    left_out = LeftOut()
    left_out.add("a\r\nb: c, d", "tools")
    assert str(left_out) == "tools.a??b??c??d"
    for i in range(2 * NAMES_MAX):
        left_out.add(str(i) * 200)
    assert len(str(left_out).split(", ")) == NAMES_MAX
    assert not LeftOut()
