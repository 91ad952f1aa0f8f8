"""Sessions of coding agents: the scripted model in the three dialects, and what a replay counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.clients.official_clients import anthropic, openai
from support.fake_daemon import Faked

from bench.sessions import dialects, script
from bench.sessions.dialects import CHAT, MESSAGES, RESPONSES
from bench.sessions.replay import Replayed, new_tokens
from bench.sessions.script import Script, Step
from bench.sessions.scripted_model import Recorded, ScriptedModel
from llamad.engine.testing.fake import Fake

STEPS = [(Step("run", "ls"),), (Step("read", "a.py"), Step("read", "b.py"))]
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}}


@pytest.fixture
def scripted() -> Iterator[ScriptedModel]:
    model = ScriptedModel("/project", STEPS)
    yield model
    model.stop()


@pytest.mark.parametrize("streamed", [False, True])
def test_messages(scripted: ScriptedModel, streamed: bool) -> None:
    official = anthropic.Anthropic(base_url=scripted.url, api_key="none", max_retries=0)
    tools: Any = [{"name": name, "input_schema": SCHEMA} for name in ("Bash", "Read")]
    turns: list[Any] = [{"role": "user", "content": "Go on."}]
    calls = []
    for _ in range(3):
        ask: Any = {"model": "scripted", "max_tokens": 99, "messages": turns, "tools": tools}
        if streamed:
            with official.messages.stream(**ask) as stream:
                message = stream.get_final_message()
        else:
            message = official.messages.create(**ask)
        uses = [block for block in message.content if block.type == "tool_use"]
        calls.append([(one.name, one.input) for one in uses])
        results = [{"type": "tool_result", "tool_use_id": one.id, "content": "x"} for one in uses]
        turns += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    assert message.content[0].text == script.DONE
    assert [[name for name, _ in one] for one in calls] == [["Bash"], ["Read", "Read"], []]
    assert calls[1][0][1] == {"file_path": "/project/a.py"}
    assert [one.path for one in scripted.requests] == [MESSAGES] * 3


@pytest.mark.parametrize("streamed", [False, True])
def test_chats_and_responses(scripted: ScriptedModel, streamed: bool) -> None:
    official = openai.OpenAI(base_url=f"{scripted.url}/v1", api_key="none", max_retries=0)
    function: Any = {"name": "bash", "parameters": SCHEMA}
    asked: Any = [{"role": "user", "content": "Go on."}]
    given = official.chat.completions.create(
        model="scripted", messages=asked, tools=[{"type": "function", "function": function}], stream=streamed
    )
    if streamed:
        deltas = [chunk.choices[0].delta for chunk in given if chunk.choices]
        (call,) = [one for delta in deltas for one in delta.tool_calls or []]
    else:
        (call,) = given.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)["command"]) == ("bash", "ls")
    tool: Any = {"type": "function", "name": "exec_command", "parameters": SCHEMA, "strict": False}
    answer = official.responses.create(model="scripted", input="Go on.", tools=[tool], stream=streamed)
    done = (
        next(event.response for event in answer if event.type == "response.completed") if streamed else answer
    )
    shell = [item for item in done.output if item.type == "function_call"]
    assert [json.loads(one.arguments) for one in shell] == [{"cmd": "cat a.py"}, {"cmd": "cat b.py"}]


def test_a_compacted_conversation_goes_on() -> None:
    """The main conversation's steps do not depend on what is left of it; those of a sub-agent do."""
    one = Script("/project", STEPS)
    asked = script.Asked(("bash", "read"), 0, "Go on.", 1, "Go on.")
    assert [len(one.answer(asked).calls) for _ in range(3)] == [1, 2, 0]
    sub = script.Asked(("bash",), 1, f"{script.DELEGATED} count.", 1, "")
    assert one.answer(sub) == one.answer(sub)
    summary = script.Asked(("bash",), 5, "", 1, "Your task is to create a detailed summary of it.")
    assert one.answer(summary).calls == []


def test_what_a_replay_counts() -> None:
    """Of three prompts the second continues the first, and the third differs from its third character on."""
    fake = Fake(script=b"One.", n_ctx=4096)
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with Faked(fake, "-np", "1", "--slots", "--chat-template", template, n_ctx=4096) as server:
        texts = ("a" * 100, "a" * 150, "aa" + "b" * 50)
        session = [Recorded(CHAT, {"messages": [{"role": "user", "content": one}]}) for one in texts]
        session.append(Recorded(RESPONSES, {"input": texts[2] + "c" * 10}))
        session.append(Recorded(MESSAGES, {"messages": [{"role": "user", "content": texts[2] + "c" * 30}]}))
        replayed = Replayed((server.client.host, server.client.port))
        counts = new_tokens(replayed, session)
        # The slot has the prompt before, so the last prompt is computed from its end.
        turn = replayed.turn(session[-1])
        refused = replayed.turn(Recorded(CHAT, {"messages": 5}))
        replayed.close()
    n_first = counts[0]
    assert 100 <= n_first <= 102  # perhaps with special tokens
    assert counts[1:] == [50, 50, 10, 20]
    assert (turn.n_prompt, turn.n_computed) == (n_first - 100 + 82, 1)
    assert refused.n_computed == -1
    assert "messages" in refused.reason


def test_functions_of_a_namespace() -> None:
    """Codex starts its sub-agents with one, and finds it by its namespace."""
    function = {"type": "function", "name": "spawn_agent", "parameters": SCHEMA}
    tools = [{"type": "namespace", "name": "agents", "tools": [function]}]
    body: dict[str, Any] = {"model": "m", "input": "Go on.", "tools": tools}
    one = Script("/project", [(Step("delegate", "Look."),)])
    _, data = dialects.write(RESPONSES, body, one.answer(dialects.read(RESPONSES, body)), 5)
    (call,) = [item for item in json.loads(data)["output"] if item["type"] == "function_call"]
    assert (call["name"], call["namespace"]) == ("spawn_agent", "agents")
    assert json.loads(call["arguments"]) == {"message": "Look."}
