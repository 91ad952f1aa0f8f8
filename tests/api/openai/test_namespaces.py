"""Tools of /v1/responses in namespaces, as Codex sends its agents and MCP servers: each function is offered, and a call
has its namespace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.chats.forced_calls import CALL_MAX
from support.clients.official_clients import openai

from llamad.api.openai.namespaces import read_offer
from llamad.api.request.errors import ApiError
from llamad.api.request.ignored_fields import LeftOut

CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": f"The {name}", "parameters": CITY, **more}


def namespace(name: str, *tools: Any, **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": name, "description": f"All of {name}", "tools": [*tools], **more}


WEATHER = namespace("mcp__weather__", function("now"), function("soon"))
TRAINS = namespace("trains", function("now"))
PLAIN = function("shell")
TOOLS = [PLAIN, WEATHER, TRAINS]


def names(choice: Any, tools: list[Any] = TOOLS) -> tuple[list[str], Any]:
    offer = read_offer(tools, choice, LeftOut())
    return [tool["function"]["name"] for tool in offer.tools], offer.choice


def test_functions_have_full_names_and_descriptions() -> None:
    offer = read_offer(TOOLS, None, LeftOut())
    described = {one["function"]["name"]: one["function"]["description"] for one in offer.tools}
    assert described == {
        "shell": "The shell",
        "mcp__weather__now": "All of mcp__weather__\n\nThe now",
        "mcp__weather__soon": "The soon",
        "trains__now": "All of trains\n\nThe now",
    }
    assert {name: tuple(member) for name, member in offer.members.items()} == {
        "mcp__weather__now": ("mcp__weather__", "now"),
        "mcp__weather__soon": ("mcp__weather__", "soon"),
        "trains__now": ("trains", "now"),
    }
    assert all(one["function"]["parameters"] == CITY for one in offer.tools)


ALL = ["shell", "mcp__weather__now", "mcp__weather__soon", "trains__now"]


@pytest.mark.parametrize(
    ("choice", "offered", "chosen"),
    [
        ({"type": "function", "name": "shell"}, ALL, "shell"),
        ({"type": "function", "name": "now", "namespace": "trains"}, ALL, "trains__now"),
        ({"type": "function", "name": "soon"}, ALL, "mcp__weather__soon"),
        ({"type": "function", "name": "trains__now"}, ALL, "trains__now"),
    ],
)
def test_a_choice_names_one(choice: Any, offered: list[str], chosen: str) -> None:
    assert names(choice) == (offered, {"type": "function", "name": chosen})


@pytest.mark.parametrize(
    ("allowed", "offered"),
    [
        ({"type": "function", "name": "shell"}, ["shell"]),
        ({"type": "namespace", "name": "trains"}, ["trains__now"]),
        ({"type": "function", "name": "now", "namespace": "mcp__weather__"}, ["mcp__weather__now"]),
        ({"type": "function", "name": "now"}, ["mcp__weather__now", "trains__now"]),
    ],
)
def test_a_choice_lists_some(allowed: Any, offered: list[str]) -> None:
    assert names({"type": "allowed_tools", "mode": "required", "tools": [allowed]}) == (offered, "required")


@pytest.mark.parametrize(
    ("tools", "choice", "said"),
    [
        ([namespace("a", function(""))], None, "tools[0].tools[0]"),
        ([namespace("", function("b"))], None, "tools[0]"),
        ([{"type": "namespace", "name": "a"}], None, "tools[0]"),
        ([namespace("a", description=1)], None, "tools[0].description"),
        ([namespace("a", function("b")), function("a__b")], None, "a__b"),
        ([namespace("a", function("b"), function("b"))], None, "a__b"),
        (TOOLS, {"type": "function", "name": "now"}, "namespace"),
    ],
)
def test_wrong_tools(client: Any, tools: Any, choice: Any, said: str) -> None:
    with pytest.raises(ApiError) as raised:
        read_offer(tools, choice, LeftOut())
    assert said in raised.value.message
    sent = client.post("/v1/responses", {"input": "Hi", "tools": tools, "tool_choice": choice})
    assert (sent.status, sent.error["message"]) == (400, raised.value.message)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_has_its_namespace(client: Any, streamed: bool) -> None:
    official = openai.OpenAI(
        base_url=f"http://{client.host}:{client.port}/v1", api_key="none", max_retries=0, timeout=300
    )
    options: Any = {
        "model": "any",
        "input": "What is the weather in Paris?",
        "max_output_tokens": CALL_MAX,
        "tools": TOOLS,
        "tool_choice": {"type": "function", "name": "soon"},
    }
    if streamed:
        with official.responses.stream(**options) as stream:
            events = list(stream)
            response = stream.get_final_response()
        added = next(one.item for one in events if one.type == "response.output_item.added")
        assert (added.name, added.namespace) == ("soon", "mcp__weather__")
    else:
        response = official.responses.create(**options)
    (call,) = response.output
    assert (call.type, call.name, call.namespace) == ("function_call", "soon", "mcp__weather__")
    assert json.loads(call.arguments)["city"] in ("Paris", "Rome")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny"}
    for own in (
        {"previous_response_id": response.id, "input": [result]},
        {"input": [{"role": "user", "content": options["input"]}, call.to_dict(), result]},
    ):
        counted = client.post("/v1/responses/input_tokens", {**own, "tools": TOOLS})
        assert counted.status == 200, counted.body
        again = official.responses.create(**{**options, "tool_choice": "none", **own})
        assert again.output_text
