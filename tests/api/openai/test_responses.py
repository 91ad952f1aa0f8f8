"""The official OpenAI client on /v1/responses: items, streams, tools, reasoning, schemas, errors."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from support.clients.official_clients import openai

from llamad.api.openai.responses import ResponseDialect
from llamad.api.openai.responses_items import Events, OutputItems
from llamad.api.openai.responses_request import Given
from llamad.api.request.errors import ApiError
from llamad.chat.parsing import detect, make_parser

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def client_of(server: Any) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"http://{server.host}:{server.port}/v1", api_key="none", max_retries=0, timeout=300
    )


@pytest.fixture
def official(client: Any) -> openai.OpenAI:
    return client_of(client)


@pytest.fixture
def thinking(thinker: Any) -> openai.OpenAI:
    return client_of(thinker)


def exactly(text: str) -> dict[str, Any]:
    """The model can say only this."""
    return {"grammar": f"root ::= {json.dumps(text)}"}


def ask(official: openai.OpenAI, input: Any = "Say hello.", **more: Any) -> Any:
    return official.responses.create(
        model="any", input=input, **{"max_output_tokens": 8, "temperature": 0, **more}
    )


@pytest.mark.real_model
def test_create(official: openai.OpenAI) -> None:
    response = ask(official, instructions="Be brief.", metadata={"a": "b"})
    assert response.id.startswith("resp_")
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text
    assert response.usage.output_tokens == 8
    assert response.usage.total_tokens == response.usage.input_tokens + 8
    assert (response.metadata, response.instructions, response.model) == ({"a": "b"}, "Be brief.", "any")
    (item,) = response.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "incomplete")
    items = [{"role": "developer", "content": "Be brief."}]
    items.append({"role": "user", "content": [{"type": "input_text", "text": "Say hello."}]})
    assert ask(official, items).output_text == response.output_text
    whole = ask(official, max_output_tokens=32, extra_body=exactly("Hello there"))
    assert (whole.status, whole.output_text) == ("completed", "Hello there")
    again = ask(official, [{"role": "user", "content": "Hi"}, *whole.output, *items[1:]])
    assert again.output_text


def test_stream(official: openai.OpenAI) -> None:
    events = list(ask(official, stream=True, max_output_tokens=32, extra_body=exactly("Hello there")))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    names = [event.type for event in events]
    assert names[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert names[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert set(names[4:-4]) == {"response.output_text.delta"}
    assert "".join(event.delta for event in events[4:-4]) == "Hello there"
    assert events[-1].response.output_text == "Hello there"
    assert events[-1].response.id == events[0].response.id
    last = list(ask(official, stream=True))[-1]
    assert last.type == "response.incomplete"


@pytest.mark.parametrize("streamed", [False, True])
def test_tools_round_trip(official: openai.OpenAI, streamed: bool) -> None:
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    choice = {"type": "function", "name": "get_weather"}
    options: Any = {
        "model": "any",
        "input": question,
        "max_output_tokens": 64,
        "temperature": 0,
        "tools": [WEATHER],
        "tool_choice": choice,
        "parallel_tool_calls": False,
    }
    if streamed:
        with official.responses.stream(**options) as stream:
            events = list(stream)
            response = stream.get_final_response()
        told = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        assert "".join(told) == response.output[0].arguments
    else:
        response = official.responses.create(**options)
    assert response.status == "completed"
    (call,) = response.output
    assert (call.type, call.name) == ("function_call", "get_weather")
    assert json.loads(call.arguments)["city"] in ("Paris", "Rome")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}
    answer = ask(official, [*question, call.to_dict(), output], tools=[WEATHER], tool_choice="none")
    assert answer.output_text


def test_allowed_tools(official: openai.OpenAI) -> None:
    other = {**WEATHER, "name": "other"}
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "other"}],
    }
    response = ask(official, tools=[WEATHER, other], tool_choice=choice, max_output_tokens=64)
    assert {call.name for call in response.output} == {"other"}


@pytest.mark.parametrize("streamed", [False, True])
def test_reasoning(thinking: openai.OpenAI, streamed: bool) -> None:
    options: Any = {
        "max_output_tokens": 64,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
        "extra_body": exactly("<think>Let me see.</think>Yes."),
    }
    if streamed:
        events = list(ask(thinking, stream=True, **options))
        told = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
        assert "".join(told) == "Let me see."
        response = events[-1].response
    else:
        response = ask(thinking, **options)
    thought, message = response.output
    assert (thought.type, thought.content[0].text) == ("reasoning", "Let me see.")
    assert message.content[0].text == "Yes."
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens
    logprobs = message.content[0].logprobs
    assert "Yes." in "".join(one.token for one in logprobs)
    assert "Let" not in [one.token for one in logprobs]
    assert all(len(one.top_logprobs) == 2 for one in logprobs)
    follow = [{"role": "user", "content": "Hi"}, thought.to_dict(), message.to_dict()]
    assert ask(thinking, [*follow, {"role": "user", "content": "And?"}]).output_text
    n_plain = ask(thinking).usage.input_tokens
    assert ask(thinking, reasoning={"effort": "high"}).usage.input_tokens > n_plain


class Verdict(pydantic.BaseModel):
    ok: bool
    colour: str = pydantic.Field(pattern="^(red|green)$")


def test_schema(official: openai.OpenAI) -> None:
    response = official.responses.parse(
        model="any", input="Judge.", text_format=Verdict, max_output_tokens=64, temperature=0
    )
    assert isinstance(response.output_parsed, Verdict)


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"previous_response_id": "resp_1"}, 400, "previous_response_id"),
    ({"input": []}, 400, "input"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, 400, "[0]"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, 501, "input_image"),
    ({"input": [{"type": "function_call", "name": "x"}]}, 400, "call_id"),
    ({"tools": [{"type": "function"}]}, 400, "name"),
    ({"tool_choice": "required"}, 400, "tool_choice"),
    ({"text": {"format": {"type": "json_schema"}}}, 400, "schema"),
    ({"max_output_tokens": 0}, 400, "max_output_tokens"),
    ({"reasoning": {"effort": "huge"}}, 400, "effort"),
    ({"messages": []}, 400, "messages"),
    ({"metadata": 1}, 400, "metadata"),
]


@pytest.mark.parametrize(("body", "status", "named"), WRONG)
def test_wrong_requests(client: Any, body: dict[str, Any], status: int, named: str) -> None:
    answer = client.post("/v1/responses", {"input": "Hi", **body})
    assert answer.status == status
    assert named in answer.error["message"]


def test_typed_errors(official: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="is not stored"):
        ask(official, previous_response_id="resp_1")


def test_a_call_cut_off_is_incomplete() -> None:
    tools = [{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}]
    parser = make_parser(
        detect("<tool_call>"),
        reasoning="auto",
        tools_on=True,
        parallel=True,
        starts_in_reasoning=False,
        tools=tools,
    )
    chat: Any = SimpleNamespace(parser=lambda: parser, call_id=lambda delta: "call_1")
    answer = OutputItems(chat, Events(), {})
    answer.take(parser.feed('Well. <tool_call>{"name": "a", "arguments": {"b": 1'))
    answer.take(parser.finish())
    answer.close("incomplete")
    text, call = answer.items
    assert (text["status"], text["content"][0]["text"]) == ("completed", "Well.")
    assert (call["status"], call["arguments"]) == ("incomplete", '{"b": 1')


def test_a_stream_that_breaks_off_ends_with_an_event() -> None:
    generation: Any = SimpleNamespace(temperature=1.0, top_p=1.0)
    chat: Any = None
    dialect = ResponseDialect(chat, Given({}, None, {}), generation)
    name, data = dialect.failed(ApiError(500, "broken")).rstrip(b"\n").split(b"\n")
    assert name == b"event: error"
    event = json.loads(data.removeprefix(b"data: "))
    assert (event["type"], event["message"], event["sequence_number"]) == ("error", "broken", 2)
    assert event["error"] == {"code": 500, "message": "broken", "type": "server_error"}


@pytest.mark.parametrize("field", ["user", "tools"])
def test_what_a_response_repeats_is_bounded(client: Any, field: str) -> None:
    """Each event with the whole response has it again: 7 MB of tools held up everybody for 0.3 s."""
    tool = {"type": "function", "name": "f", "description": "x" * 1000, "parameters": {"type": "object"}}
    values: dict[str, Any] = {"user": "x" * 1_500_000, "tools": [tool] * 1500}
    body = {"input": "x", "max_output_tokens": 16, "tool_choice": "none", field: values[field]}
    answer = client.post("/v1/responses", body | {"stream": True})
    assert answer.status == 400
    assert "repeats" in answer.error["message"]
    small = {**body, field: values[field][:500]}
    assert client.post("/v1/responses", small | {"stream": True}).status == 200
