"""Answers that repeat themselves without end are ended: in chats of all dialects, elsewhere on request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_daemon import Faked
from support.http_client import Client
from support.live_daemon import Live, until

from llamad.engine.testing.fake import Fake

MESSAGES = [{"role": "user", "content": "Hello"}]
# The fake model writes 256 bytes in turns. It ends once eight periods are repeated.
N_LOOP = 256 + 8 + 8 * 256
N_MAX = 2500
OBJECT = '{"color": "green blue", "size": "large"}, '


def faked(*flags: str) -> Faked:
    return Faked(Fake(n_ctx=4096, n_seqs=2), "-np", "2", "--metrics", *flags, n_ctx=4096)


@pytest.fixture(scope="module")
def looping() -> Iterator[Client]:
    with faked() as server:
        yield server.client


def completed(client: Client, **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = client.complete("Hello", n_predict=N_MAX, **options)
    return result


def chat(client: Client, **options: Any) -> dict[str, Any]:
    body = {"messages": MESSAGES, "max_tokens": N_MAX, "verbose": True, **options}
    result: dict[str, Any] = client.post("/v1/chat/completions", body).json
    return result


def n_loops(client: Client) -> int:
    line = re.search(rb"^llamad:loops_total (\d+)", client.get("/metrics").body, re.MULTILINE)
    assert line
    return int(line[1])


def test_a_chat_ends(looping: Client) -> None:
    before = n_loops(looping)
    result = chat(looping)
    assert result["choices"][0]["finish_reason"] == "stop"
    assert result["usage"]["completion_tokens"] == N_LOOP
    assert result["__verbose"]["stop_type"] == "loop"
    assert not any(result["__verbose"][f"stopped_{name}"] for name in ("eos", "limit", "word"))
    assert result["__verbose"]["generation_settings"]["loop_guard"] is True
    assert n_loops(looping) == before + 1


@pytest.mark.parametrize("options", [{"loop_guard": False}, {"ignore_eos": True}])
def test_a_chat_that_wants_it_goes_on(looping: Client, options: dict[str, Any]) -> None:
    result = chat(looping, **options)
    assert (result["choices"][0]["finish_reason"], result["usage"]["completion_tokens"]) == ("length", N_MAX)
    assert result["__verbose"]["generation_settings"]["loop_guard"] is False


def test_null_is_the_default(looping: Client) -> None:
    assert chat(looping, loop_guard=None)["__verbose"]["stop_type"] == "loop"
    assert completed(looping, loop_guard=None)["stop_type"] == "limit"


def test_a_completion_ends_on_request(looping: Client) -> None:
    assert completed(looping)["stop_type"] == "limit"
    result = completed(looping, loop_guard=True, ignore_eos=True)
    assert (result["stop_type"], result["tokens_predicted"]) == ("loop", N_LOOP)
    body = {"prompt": "Hello", "max_tokens": N_MAX, "loop_guard": True}
    answer = looping.post("/v1/completions", body).json
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == ("stop", N_LOOP)


def test_it_must_be_true_or_false(looping: Client) -> None:
    answer = looping.post("/v1/chat/completions", {"messages": MESSAGES, "loop_guard": 1})
    assert answer.status == 400
    assert answer.error["message"] == '"loop_guard" must be true or false'


def test_a_stream_and_each_of_several_completions_end(looping: Client) -> None:
    assert [one["finish_reason"] for one in chat(looping, n=2)["choices"]] == ["stop", "stop"]
    body = {"prompt": "Hello", "n_predict": N_MAX, "stream": True, "loop_guard": True}
    events = list(looping.events("/completion", body))
    assert sum(len(event["tokens"]) for event in events) == N_LOOP
    assert (events[-1]["stop_type"], events[-1]["tokens_predicted"]) == ("loop", N_LOOP)


def test_other_dialects(looping: Client) -> None:
    message = looping.post("/v1/messages", {"messages": MESSAGES, "max_tokens": N_MAX}).json
    assert (message["stop_reason"], message["stop_sequence"]) == ("end_turn", None)
    assert message["usage"]["output_tokens"] == N_LOOP
    response = looping.post("/v1/responses", {"input": "Hello", "max_output_tokens": N_MAX}).json
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    assert response["usage"]["output_tokens"] == N_LOOP
    for path, body in (("chat", {"messages": MESSAGES}), ("generate", {"prompt": "Hello"})):
        own = {"model": "fake", "stream": False, **body}
        line = looping.post(f"/api/{path}", {**own, "options": {"num_predict": N_MAX}}).json
        assert (line["done_reason"], line["eval_count"]) == ("stop", N_LOOP)
        line = looping.post(
            f"/api/{path}", {**own, "options": {"num_predict": N_MAX, "loop_guard": False}}
        ).json
        assert (line["done_reason"], line["eval_count"]) == ("length", N_MAX)


@pytest.mark.parametrize("is_on", [False, True])
def test_the_flags_are_for_all_requests_and_fields_override_them(is_on: bool) -> None:
    own, other = ("loop", "limit") if is_on else ("limit", "loop")
    with faked("--loop-guard" if is_on else "--no-loop-guard") as server:
        for options in ({}, {"ignore_eos": True}):
            assert chat(server.client, **options)["__verbose"]["stop_type"] == own
            assert completed(server.client, **options)["stop_type"] == own
        assert chat(server.client, loop_guard=not is_on)["__verbose"]["stop_type"] == other
        assert completed(server.client, loop_guard=not is_on)["stop_type"] == other


def real_chat(client: Client, text: str, **options: Any) -> dict[str, Any]:
    """The answer of a real engine, whose model writes the tokens of the text, and no others unless a grammar demands
    it."""
    tokens = client.post("/tokenize", {"content": text}).json["tokens"]
    forced = {"temperature": 0, "logit_bias": [[token, 100] for token in tokens]}
    return chat(client, **forced, **options)


def test_a_forced_array_of_equal_objects_ends(live: Live) -> None:
    """Its text is complete nowhere, so without the guard it would go on to the limit."""
    grammar = f'root ::= "[" object\nobject ::= {json.dumps(OBJECT)} object'
    n_lines = len(live.lines)
    result = real_chat(live.client, OBJECT, grammar=grammar)
    assert result["__verbose"]["stop_type"] == "loop"
    assert result["choices"][0]["finish_reason"] == "stop"
    text = result["choices"][0]["message"]["content"]
    assert ("[" + OBJECT * 999).startswith(text)
    assert len(text) > 9 * len(OBJECT)
    until(lambda: any(" finish=loop" in line for line in live.lines[n_lines:]))


def test_a_call_that_is_cut_off_is_none(client: Client) -> None:
    function = {
        "name": "say",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }
    tools = [{"type": "function", "function": function}]
    result = real_chat(client, " the", tools=tools, tool_choice="required")
    assert result["__verbose"]["stop_type"] == "loop"
    assert " the the the" in result["__verbose"]["content"]
    assert result["choices"][0]["finish_reason"] == "stop"
