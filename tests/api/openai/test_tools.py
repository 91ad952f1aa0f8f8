"""Tools through the official client: choices, forced calls, streams, a round trip, and tools of every wrong shape."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.chats.forced_calls import CALL_MAX
from support.clients.official_clients import openai
from support.fake_daemon import Faked

from llamad.chat.host import ChatHost
from llamad.chat.parsing.tool_grammar import _Grammar
from llamad.engine.testing.fake import Fake

PATH = "/v1/chat/completions"
ASK: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


def ask(official: openai.OpenAI, messages: Any = ASK, **options: Any) -> Any:
    options = {"temperature": 0, "max_tokens": 64, "tools": [WEATHER, CLOCK], **options}
    return official.chat.completions.create(model="any", messages=messages, **options)


@pytest.mark.real_model
def test_named(official: openai.OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "get_weather"}}
    answer = ask(official, tool_choice=choice).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    [call] = answer.message.tool_calls
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments)["city"] in ("Paris", "Rome")
    assert call.id != ask(official, tool_choice=choice).choices[0].message.tool_calls[0].id


@pytest.mark.real_model
def test_required(official: openai.OpenAI) -> None:
    answer = ask(official, tool_choice="required", parallel_tool_calls=False).choices[0]
    assert len(answer.message.tool_calls) == 1
    chunks = list(ask(official, tool_choice="required", parallel_tool_calls=False, stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert calls[0].id
    assert calls[0].function.name == answer.message.tool_calls[0].function.name
    assert [call.id for call in calls[1:]] == [None] * (len(calls) - 1)
    joined = "".join(call.function.arguments for call in calls)
    assert joined == answer.message.tool_calls[0].function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert not any(chunk.choices[0].delta.content for chunk in chunks)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "clock"}}])
def test_a_forced_call_ends_the_answer(client: Any, choice: Any) -> None:
    """Random weights would go on calling until the limit, and leave the last call incomplete."""
    body = {"messages": ASK, "tools": [CLOCK], "tool_choice": choice, "max_tokens": CALL_MAX}
    answer = client.post(PATH, body).json["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert [call["function"]["name"] for call in answer["message"]["tool_calls"]] == ["clock"]
    tool = {"name": "clock", "input_schema": {"type": "object", "properties": {}}}
    asked = {"type": "any"} if choice == "required" else {"type": "tool", "name": "clock"}
    answer = client.post("/v1/messages", {**body, "tools": [tool], "tool_choice": asked}).json
    assert (answer["stop_reason"], len(answer["content"])) == ("tool_use", 1)


def test_parallel(official: openai.OpenAI) -> None:
    """The grammar of several calls, with one call behind the other."""
    several: Any = {"tool_choice": "required", "parallel_tool_calls": True, "max_tokens": CALL_MAX}
    answer = ask(official, tools=[WEATHER], **several).choices[0]
    assert answer.message.tool_calls
    assert all(json.loads(call.function.arguments)["city"] for call in answer.message.tool_calls[:1])


def test_none_and_auto(official: openai.OpenAI, client: Any) -> None:
    plain = ask(official, tools=openai.omit, max_tokens=8)
    assert ask(official, tool_choice="none", max_tokens=8).choices[0].message == plain.choices[0].message
    auto = ask(official, tool_choice="auto", max_tokens=8)
    assert auto.usage.prompt_tokens > plain.usage.prompt_tokens
    # What looks like a call of a known function is one; of an unknown one it is text.
    for name, is_call in (("clock", True), ("unknown", False)):
        text = json.dumps({"tool_calls": [{"name": name, "arguments": {}}]})
        grammar = f"root ::= {json.dumps(text)}"
        answer = ask(official, extra_body={"grammar": grammar}).choices[0]
        assert (answer.message.tool_calls is not None) == is_call
        assert (answer.message.content == text) != is_call
        assert answer.finish_reason == ("tool_calls" if is_call else "stop")


def test_round_trip(official: openai.OpenAI, client: Any) -> None:
    named: Any = {"type": "function", "function": {"name": "get_weather"}}
    message = ask(official, tool_choice=named).choices[0].message
    call = message.tool_calls[0]
    messages = [
        *ASK,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "18 degrees and sunny"},
    ]
    answer = ask(official, messages, tool_choice="none")
    assert answer.choices[0].message.content
    prompt = client.post("/apply-template", {"messages": messages, "tools": [WEATHER]}).json["prompt"]
    assert "18 degrees and sunny" in prompt
    assert '"name": "get_weather"' in prompt
    assert "The weather of a city" in prompt


def test_allowed_tools(official: openai.OpenAI, client: Any) -> None:
    """Of all tools those that the choice lists are shown and may be called."""

    def choice(*names: str, mode: str) -> Any:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}

    forced = ask(official, tool_choice=choice("clock", mode="required"), parallel_tool_calls=False)
    assert forced.choices[0].message.tool_calls[0].function.name == "clock"
    body = {"messages": ASK, "tools": [WEATHER, CLOCK], "tool_choice": choice("clock", mode="auto")}
    prompt = client.post("/apply-template", body).json["prompt"]
    assert "clock" in prompt
    assert "get_weather" not in prompt
    for wrong in (choice("clock", mode="always"), choice(mode="required"), {"type": "allowed_tools"}):
        assert client.post(PATH, {**body, "tool_choice": wrong}).error["message"].startswith('"tool_choice"')


def test_functions(official: openai.OpenAI, client: Any) -> None:
    """OpenAI's older form."""
    old = {"functions": [WEATHER["function"]], "function_call": {"name": "get_weather"}}
    answer = ask(official, tools=openai.omit, extra_body=old).choices[0]
    assert answer.message.tool_calls[0].function.name == "get_weather"
    called = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    result = {"role": "function", "name": "f", "content": "done"}
    now = [
        {
            "role": "assistant",
            "tool_calls": [{"id": "call_1", "type": "function", "function": called["function_call"]}],
        },
        {"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "done"},
    ]
    prompts = [
        client.post("/apply-template", {"messages": [*ASK, *messages]}).json["prompt"]
        for messages in ([called, result], now)
    ]
    assert prompts[0] == prompts[1]


@pytest.mark.parametrize("name", ["auto", "required", "none"])
def test_function_named_as_a_choice(official: openai.OpenAI, name: str) -> None:
    tools: Any = [WEATHER, {"type": "function", "function": {"name": name, "parameters": None}}]
    choice: Any = {"type": "function", "function": {"name": name}}
    calls = ask(official, tools=tools, tool_choice=choice, max_tokens=128).choices[0].message.tool_calls
    assert [call.function.name for call in calls] == [name]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"tools": {}}, '"tools" must be an array'),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [WEATHER, {"function": {"name": ""}}]}, "tools[1]"),
        ({"tools": [{"function": {"name": "a", "parameters": "x"}}]}, '"tools[0].function.parameters"'),
        ({"tools": [{"function": {"name": "a", "description": 1}}]}, '"tools[0].function.description"'),
        ({"tools": [], "tool_choice": "required"}, "no tools"),
        ({"tool_choice": "sometimes"}, '"tool_choice"'),
        ({"tool_choice": {"function": {"name": "nobody"}}}, "not among the tools"),
        ({"tool_choice": {"function": 3}}, "not among the tools"),
        ({"parallel_tool_calls": "no"}, '"parallel_tool_calls"'),
        ({"tools": None, "functions": 3}, '"functions"'),
        ({"tool_choice": "required", "grammar": 'root ::= "a"'}, '"grammar"'),
        (
            {"function_call": {"name": "clock"}, "grammar": 'root ::= "a"'},
            '"grammar" cannot be combined with a "function_call"',
        ),
        (
            {
                "tools": [CLOCK, {"function": {"name": "a", "parameters": {"type": 7}}}],
                "tool_choice": "required",
            },
            "tools[1].function.parameters",
        ),
        ({"messages": [*ASK, {"role": "assistant", "tool_calls": {}}]}, '"messages[1].tool_calls"'),
        ({"messages": [*ASK, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages[1]"),
        ({"messages": [*ASK, {"role": "assistant", "function_call": "f"}]}, "messages[1]"),
        (
            {"messages": [*ASK, {"role": "tool", "tool_call_id": 5, "content": "x"}]},
            '"messages[1].tool_call_id"',
        ),
    ],
)
def test_errors(official: openai.OpenAI, body: dict[str, Any], says: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(official, extra_body=body)
    error: Any = caught.value.body
    assert says in error["message"]


def test_hostile_schema(client: Any) -> None:
    """Taken or refused within the converter's limits, and the next one is served."""
    deep: Any = {"type": "string", "pattern": "^(a{1,400}){1,400}$"}
    properties = {f"p{i}": deep for i in range(200)}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}
    body = {"messages": ASK, "tools": [tool], "tool_choice": "required", "max_tokens": 1}
    answer = client.post(PATH, body)
    assert answer.status in (200, 400), answer.body
    assert client.post(PATH, {**body, "tools": [CLOCK]}).status == 200


def test_forced_grammar_is_made_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> str:
        raise AssertionError("a tool's grammar was made in the daemon's process")

    monkeypatch.setattr(_Grammar, "text", never)
    with Faked(Fake(n_ctx=4096), n_ctx=4096) as server:
        body = {"messages": ASK, "tools": [CLOCK], "tool_choice": "required", "max_tokens": 2}
        answer = server.client.post(PATH, body)
        assert answer.status == 200, answer.body


def test_large_chat_is_rendered_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker renders it, others are answered."""
    may_render = threading.Event()
    render = ChatHost.prompt

    def held(self: ChatHost, *args: Any, **options: Any) -> str:
        assert may_render.wait(30)
        return render(self, *args, **options)

    with Faked(Fake(n_ctx=4096), n_ctx=4096) as server, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(ChatHost, "prompt", held)  # not before: a template is tried while the model loads
        messages = [{"role": "user", "content": "x"}, {"role": "user", "content": " " * 20000}]
        body = {"messages": messages, "max_tokens": 1}
        asked = pool.submit(server.client.post, "/apply-template", body)
        server.until(lambda: len(server.served.preparing) == 1)
        assert server.client.get("/health").status == 200
        assert not asked.done()
        may_render.set()
        assert asked.result(30).status == 200


WORDS = st.sampled_from(
    [
        "role",
        "content",
        "user",
        "tool",
        "assistant",
        "function",
        "tool_calls",
        "name",
        "arguments",
        "",
        "text",
    ]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "function", "developer", "other"])
CALLS = st.lists(
    st.fixed_dictionaries(
        {"function": st.fixed_dictionaries({"name": WORDS, "arguments": ANY}) | ANY}, optional={"id": ANY}
    ),
    max_size=2,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": ROLES},
        optional={
            "content": st.text(max_size=8) | ANY,
            "tool_calls": CALLS | ANY,
            "function_call": ANY,
            "name": ANY,
            "tool_call_id": ANY,
            "reasoning_content": ANY,
        },
    ),
    min_size=1,
    max_size=4,
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {
            "function": st.fixed_dictionaries(
                {"name": st.text(max_size=6)}, optional={"parameters": ANY, "strict": ANY, "description": ANY}
            )
            | ANY
        }
    ),
    max_size=3,
)
BODY = st.fixed_dictionaries(
    {"messages": MESSAGES | ANY},
    optional={
        "tools": TOOLS | ANY,
        "tool_choice": st.sampled_from(["none", "auto", "required"]) | ANY,
        "functions": ANY,
        "function_call": ANY,
        "response_format": ANY,
        "chat_template_kwargs": ANY,
        "stream_options": ANY,
        "logprobs": ANY,
        "parallel_tool_calls": ANY,
        "model": ANY,
        "add_generation_prompt": ANY,
    },
)


@pytest.fixture(scope="module", params=["", "llama3", "mistral-v7"])
def faked(request: pytest.FixtureRequest) -> Any:
    flags = ("--chat-template", request.param) if request.param else ()
    with Faked(Fake(n_ctx=4096), *flags, n_ctx=4096) as server:
        yield server


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(body=BODY)
def test_any_shape_has_its_answer(faked: Faked, body: dict[str, Any]) -> None:
    """A wrong shape is a 400, never a 500."""
    answer = faked.client.post(PATH, {**body, "max_tokens": 2})
    assert answer.status in (200, 400, 501), (answer.body, body)
    if answer.status != 200:
        assert answer.error["message"]


def test_deep_nesting(faked: Faked) -> None:
    for depth in (50, 300, 900, 5000):
        deep = '{"a":' * depth + "1" + "}" * depth
        for choice in ("auto", "required"):
            body = {"messages": ASK, "tools": [{"function": {"name": "f", "parameters": "DEEP"}}]}
            text = json.dumps({**body, "tool_choice": choice, "max_tokens": 1}).replace('"DEEP"', deep)
            answer = faked.client.post(PATH, text.encode())
            assert answer.status in (200, 400), answer.body
