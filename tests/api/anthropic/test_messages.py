"""The official Anthropic client: messages, streams, tools, thoughts, counting."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.chats.forced_calls import CALL_MAX
from support.clients.official_clients import anthropic

GREEDY = {"temperature": 0}  # newer clients have no argument for it
HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


def ask(official: anthropic.Anthropic, messages: list[Any] = HELLO, **more: Any) -> anthropic.types.Message:
    extra = GREEDY | more.pop("extra_body", {})
    options: Any = {"model": "any", "max_tokens": 8, "extra_body": extra, **more}
    return official.messages.create(messages=messages, **options)


def exactly(text: str) -> dict[str, Any]:
    """The model can say only this."""
    return {"grammar": f"root ::= {json.dumps(text)}", "cache_prompt": False}


@pytest.mark.real_model
def test_message(official: anthropic.Anthropic) -> None:
    message = ask(official, system="Be brief.")
    assert message.id.startswith("msg_")
    assert (message.type, message.role, message.model) == ("message", "assistant", "any")
    (block,) = message.content
    assert block.type == "text"
    assert block.text
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 8
    again = ask(official, system=[{"type": "text", "text": "Be brief."}])
    assert again.content[0].text == block.text
    assert again.usage.cache_read_input_tokens > 0
    n_input = message.usage.input_tokens + message.usage.cache_read_input_tokens
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens == n_input
    assert again.id != message.id


def test_stop_reasons(official: anthropic.Anthropic) -> None:
    end = ask(official, max_tokens=32, extra_body=exactly("one two three"))
    assert (end.stop_reason, end.stop_sequence, end.content[0].text) == ("end_turn", None, "one two three")
    word = ask(
        official, max_tokens=32, stop_sequences=["never", "three"], extra_body=exactly("one two three")
    )
    assert (word.stop_reason, word.stop_sequence) == ("stop_sequence", "three")
    assert word.content[0].text == "one two "


def test_stream(official: anthropic.Anthropic) -> None:
    whole = ask(official)
    with official.messages.stream(model="any", max_tokens=8, extra_body=GREEDY, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.content[0].text == text == whole.content[0].text
    assert final.stop_reason == "max_tokens"
    assert final.usage.output_tokens == 8


def test_named_events(client: Any) -> None:
    body = {"max_tokens": 4, "messages": HELLO, "stream": True}
    answer = client.post("/v1/messages", body)
    events = [one.split(b"\n") for one in answer.body.split(b"\n\n") if one]
    names = [event[0].removeprefix(b"event: ").decode() for event in events]
    data = [json.loads(event[1].removeprefix(b"data: ")) for event in events]
    assert [one["type"] for one in data] == names
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"}
    assert (
        data[0]["message"]["usage"]["input_tokens"] + data[0]["message"]["usage"]["cache_read_input_tokens"]
        > 0
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_tools_round_trip(official: anthropic.Anthropic, streamed: bool) -> None:
    question: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    options: Any = {
        "model": "any",
        "max_tokens": CALL_MAX,
        "extra_body": GREEDY,
        "tools": [WEATHER],
        "tool_choice": {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
    }
    if streamed:
        with official.messages.stream(messages=question, **options) as stream:
            message = stream.get_final_message()
    else:
        message = official.messages.create(messages=question, **options)
    assert message.stop_reason == "tool_use"
    (call,) = message.content
    assert call.type == "tool_use"
    assert call.name == "get_weather"
    assert call.input["city"] in ("Paris", "Rome")
    result = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": "Sunny, 20"}],
    }
    turns = [
        *question,
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result]},
    ]
    answer = ask(official, turns, tools=[WEATHER], tool_choice={"type": "none"})
    assert answer.content[0].type == "text"


def test_any_tool_is_forced(official: anthropic.Anthropic) -> None:
    message = ask(official, max_tokens=CALL_MAX, tools=[WEATHER], tool_choice={"type": "any"})
    assert message.content[0].type == "tool_use"


def test_tool_results_reach_the_prompt(client: Any, official: anthropic.Anthropic) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such city", "is_error": True}
    turns: list[Any] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
    ]
    short = official.messages.count_tokens(model="any", messages=turns)
    turns.append({"role": "user", "content": [result, {"type": "text", "text": "And now?"}]})
    assert official.messages.count_tokens(model="any", messages=turns).input_tokens > short.input_tokens + 8


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking(thinking: anthropic.Anthropic, streamed: bool) -> None:
    options: Any = {
        "model": "any",
        "max_tokens": 64,
        "thinking": {"type": "enabled", "budget_tokens": 32},
        "extra_body": exactly("<think>Let me see.</think>Yes."),
    }
    if streamed:
        with thinking.messages.stream(messages=HELLO, **options) as stream:
            message = stream.get_final_message()
    else:
        message = thinking.messages.create(messages=HELLO, **options)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == "Let me see."
    assert message.content[1].text == "Yes."
    turns = [*HELLO, {"role": "assistant", "content": message.content}, *HELLO]
    with_thought = thinking.messages.count_tokens(model="any", messages=turns).input_tokens
    turns[1]["content"] = message.content[1:]  # the server puts the thought back
    assert thinking.messages.count_tokens(model="any", messages=turns).input_tokens == with_thought
    turns[1]["content"] = "Yes!"  # it knows no such turn
    assert thinking.messages.count_tokens(model="any", messages=turns).input_tokens < with_thought


def test_thinking_disabled(thinking: anthropic.Anthropic) -> None:
    more = exactly("<think>Let me see.</think>Yes.")
    message = ask(thinking, max_tokens=64, thinking={"type": "disabled"}, extra_body=more)
    assert [block.type for block in message.content] == ["text"]
    assert message.content[0].text == "Yes."
    plain = thinking.messages.count_tokens(model="any", messages=HELLO)
    told = thinking.messages.count_tokens(model="any", messages=HELLO, thinking={"type": "disabled"})
    assert told.input_tokens > plain.input_tokens  # the template was told


def test_thinking_omitted(thinking: anthropic.Anthropic) -> None:
    wanted: Any = {"type": "adaptive", "display": "omitted"}
    more = exactly("<think>Let me see.</think>Yes.")
    message = ask(thinking, max_tokens=64, thinking=wanted, extra_body=more)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == ""


def test_schema(official: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    more = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    message = ask(official, max_tokens=32, extra_body=more)
    assert isinstance(json.loads(message.content[0].text)["ok"], bool)


def test_prefill(official: anthropic.Anthropic) -> None:
    turns = [*HELLO, {"role": "assistant", "content": "Hello, my name is"}]
    assert ask(official, turns, max_tokens=3).content[0].text


def test_count_tokens(client: Any, official: anthropic.Anthropic) -> None:
    counted = official.messages.count_tokens(model="any", messages=HELLO, system="Be brief.", tools=[WEATHER])
    usage = ask(official, system="Be brief.", tools=[WEATHER], max_tokens=1).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    long: list[Any] = [{"role": "user", "content": "word " * 20000}]
    assert official.messages.count_tokens(model="any", messages=long).input_tokens > 20000
