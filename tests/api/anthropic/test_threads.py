"""Anthropic's threads, in which a request has only what is new: refused with the error from which the client recovers,
so that no conversation is lost."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from support.chats.forced_calls import CALL_MAX
from support.clients.official_clients import anthropic

HELLO: list[Any] = [{"role": "user", "content": "My name is Ada."}]
MORE: list[Any] = [{"role": "user", "content": "What is my name?"}]


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize(
    "thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}, 5]
)
def test_the_error_has_its_code(client: Any, path: str, thread: Any) -> None:
    answer = client.post(path, {"messages": HELLO, "max_tokens": 4, "thread": thread})
    assert answer.status == 400
    error = answer.json["error"]
    assert error["type"] == "invalid_request_error"
    assert error["details"] == {"error_code": "thread_unsupported_request"}
    assert client.post(path, {"messages": HELLO, "max_tokens": 4, "thread": None}).status == 200


def test_a_thread_goes_on_without_the_server(official: anthropic.Anthropic) -> None:
    thread = official.beta.messages.thread(
        model="any", max_tokens=4, unsupported_request_behavior="continue_unthreaded"
    )
    first = thread.send(*HELLO)
    n_first = first.usage.input_tokens + first.usage.cache_read_input_tokens
    second = thread.send(*MORE)
    n_second = second.usage.input_tokens + second.usage.cache_read_input_tokens
    whole = [*HELLO, {"role": "assistant", "content": first.content}, *MORE]
    assert n_second == official.messages.count_tokens(model="any", messages=whole).input_tokens > n_first


def test_the_tool_runner_sends_the_whole_conversation(official: anthropic.Anthropic) -> None:
    weather = anthropic.beta_tool(_get_weather)
    asked: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    runner = official.beta.messages.tool_runner(
        model="any",
        max_tokens=CALL_MAX,
        messages=asked,
        tools=[weather],
        tool_choice={"type": "any"},
        max_iterations=2,
    )
    first, second = list(runner)
    (call,) = first.content
    assert (call.type, call.name) == ("tool_use", "_get_weather")
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Sunny"}
    whole = [*asked, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    counted = official.beta.messages.count_tokens(
        model="any", messages=whole, tools=[weather.to_dict()], tool_choice={"type": "any"}
    )
    assert second.usage.input_tokens + (second.usage.cache_read_input_tokens or 0) == counted.input_tokens


def _get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city.

    Args:
        city: Where.
    """
    return "Sunny"
