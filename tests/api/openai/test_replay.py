"""Turns that come back have the tokens that were generated, in all dialects of chats. The model has random weights, so
its tokens of a text are others than the tokenizer's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.chats import templates
from support.chats.forced_calls import CALL_MAX
from support.chats.replayed import mangled
from support.fake_daemon import Faked
from support.http_client import Client
from support.live_daemon import Live

from llamad.engine.testing.fake import Fake

SAID = "Sure, I will look at the file now."
ASK = "Look at the file."
GRAMMAR = f'root ::= "{SAID}"'
OPTIONS = {"grammar": GRAMMAR, "temperature": 1.0, "seed": 7}


@pytest.fixture(scope="module")
def servers(tiny: str) -> Iterator[dict[str, Client]]:
    flags = ("-np", "1", "-c", "2048", "--api-key", "first,second")
    with (
        Live(*flags, "--slots", model=tiny) as replaying,
        Live(*flags, "--no-replay", model=tiny) as plain,
    ):
        yield {"replaying": replaying.client, "plain": plain.client}


def post(client: Client, path: str, body: dict[str, Any], key: str = "first") -> dict[str, Any]:
    answer = client.request("POST", path, body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status == 200, answer.body
    value: dict[str, Any] = answer.json
    return value


def in_chat(
    client: Client, turns: list[str], key: str = "first", **options: Any
) -> tuple[str, int, int, int]:
    """Return the text, and the tokens of the prompt, of those the cached ones, and of the text."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    got = post(client, "/v1/chat/completions", {"messages": messages, **OPTIONS, **options}, key)
    usage = got["usage"]
    n_cached = usage["prompt_tokens_details"]["cached_tokens"]
    return (
        got["choices"][0]["message"]["content"],
        usage["prompt_tokens"],
        n_cached,
        usage["completion_tokens"],
    )


def in_responses(client: Client, turns: list[str], key: str = "first") -> tuple[str, int, int, int]:
    roles = ("user", "assistant")
    items = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    got = post(client, "/v1/responses", {"input": items, **OPTIONS}, key)
    usage = got["usage"]
    n_cached = usage["input_tokens_details"]["cached_tokens"]
    return got["output"][0]["content"][0]["text"], usage["input_tokens"], n_cached, usage["output_tokens"]


def in_messages(client: Client, turns: list[str], key: str = "first") -> tuple[str, int, int, int]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    got = post(client, "/v1/messages", {"messages": messages, "max_tokens": 100, **OPTIONS}, key)
    usage = got["usage"]
    n_cached = usage["cache_read_input_tokens"]
    return got["content"][0]["text"], usage["input_tokens"] + n_cached, n_cached, usage["output_tokens"]


def in_ollama(client: Client, turns: list[str], key: str = "first") -> tuple[str, int, int, int]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    got = post(client, "/api/chat", {"messages": messages, "stream": False, "options": OPTIONS}, key)
    slots = client.request("GET", "/slots", headers={"Authorization": f"Bearer {key}"}).json
    n_cached = slots[0]["n_prompt_tokens_cache"]  # Ollama's answers do not have it
    return got["message"]["content"], got["prompt_eval_count"], n_cached, got["eval_count"]


DIALECTS = (in_chat, in_responses, in_messages, in_ollama)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_turn_costs_only_its_new_tokens(servers: dict[str, Client], dialect: Any) -> None:
    client = servers["replaying"]
    turns = [f"{ASK} {dialect.__name__}"]
    for _ in range(3):
        text, n_prompt, _, n_text = dialect(client, turns)
        assert text == SAID
        turns += [f" {SAID}\n", "And now?"]
    _, n_last, n_cached, _ = dialect(client, turns)
    assert n_last > n_prompt + n_text
    assert n_cached >= n_prompt + n_text - 1  # the token that ends a turn is not in the cache


def test_without_replay(servers: dict[str, Client]) -> None:
    def second(client: Client, key: str) -> tuple[int, int]:
        _, n_prompt, _, n_text = in_chat(client, [ASK])
        _, n_next, n_cached, _ = in_chat(client, [ASK, SAID, "And now?"], key)
        return n_next, n_prompt + n_text - n_cached

    with_tokens, n_again = second(servers["replaying"], "first")
    plain, n_plain = second(servers["plain"], "first")
    assert n_again <= 1
    assert n_plain > 5
    assert plain < with_tokens  # the tokenizer needs fewer tokens for the text than the random model
    other_key, _ = second(servers["replaying"], "second")
    assert other_key == plain


def test_streams_and_counts(servers: dict[str, Client]) -> None:
    client = servers["replaying"]
    messages = [{"role": "user", "content": "Stream it."}]
    headers = {"Authorization": "Bearer first"}
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}, **OPTIONS}
    lines = client.request("POST", "/v1/chat/completions", body, headers=headers).body.decode().split("\n\n")
    first = json.loads(lines[-3].removeprefix("data: "))["usage"]
    messages += [{"role": "assistant", "content": [{"type": "text", "text": SAID}]}]
    messages += [{"role": "user", "content": "Again."}]
    got = post(client, "/v1/chat/completions", {"messages": messages, **OPTIONS})["usage"]
    cached = got["prompt_tokens_details"]["cached_tokens"]
    assert cached >= first["prompt_tokens"] + first["completion_tokens"] - 1
    counted = post(client, "/v1/chat/completions/input_tokens", {"messages": messages})
    assert counted["input_tokens"] == got["prompt_tokens"]


def test_a_continued_answer(servers: dict[str, Client]) -> None:
    """The answer goes on from text that the client has written; both together come back."""
    client = servers["replaying"]
    begun = [ASK, "Well: "]
    text, n_prompt, _, n_text = in_chat(client, begun)
    assert text == SAID
    _, _, n_cached, _ = in_chat(client, [ASK, "Well: " + SAID, "And now?"])
    assert n_cached >= n_prompt + n_text - 1


def test_a_text_that_a_stop_string_cuts_is_not_remembered(servers: dict[str, Client]) -> None:
    client = servers["replaying"]
    text, _, _, _ = in_chat(client, ["Stop."], stop=["file"])
    assert text == SAID[: SAID.index("file")]
    _, n_next, _, _ = in_chat(client, ["Stop.", text, "And now?"])
    assert n_next == in_chat(servers["plain"], ["Stop.", text, "And now?"])[1]


PARAMETERS = {
    "type": "object",
    "properties": {"path": {"enum": ["a b/é.txt"]}, "lines": {"enum": [[1, 2, 300]]}},
    "required": ["path", "lines"],
}
FUNCTION = {"name": "read", "description": "Reads", "parameters": PARAMETERS}
ARGUMENTS = {"path": "a b/é.txt", "lines": [1, 2, 300]}
# What clients make of the arguments: other spaces, another order, escapes.
MANGLED = json.dumps(dict(reversed(ARGUMENTS.items())), indent=2)
DRAWN = {"temperature": 1.0, "seed": 7}
KEY = {"Authorization": "Bearer first"}
Turn = tuple[int, int]  # the tokens of a prompt and its answer, and how many of the prompt were cached


def forced_in_chat(client: Client, choice: str) -> tuple[Turn, Turn]:
    named = {"type": "function", "function": {"name": "read"}}
    body: dict[str, Any] = {"tools": [{"type": "function", "function": FUNCTION}], **DRAWN}
    messages: list[Any] = [{"role": "user", "content": ASK}]
    forced = {**body, "messages": messages, "tool_choice": named if choice == "named" else "required"}
    first = post(client, "/v1/chat/completions", forced)
    (call,) = first["choices"][0]["message"]["tool_calls"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(call["function"]["arguments"]) == ARGUMENTS
    sent = {**call, "function": {"name": "read", "arguments": MANGLED}}
    messages += [{"role": "assistant", "content": None, "tool_calls": [sent]}]
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": "fine"}]
    then = post(client, "/v1/chat/completions", {**body, "messages": messages, "max_tokens": 2})
    n_cached = then["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert then["timings"]["cache_n"] == n_cached
    return (first["usage"]["total_tokens"], 0), (then["usage"]["total_tokens"], n_cached)


def forced_in_responses(client: Client, choice: str) -> tuple[Turn, Turn]:
    named = {"type": "function", "name": "read"}
    body: dict[str, Any] = {"tools": [{"type": "function", **FUNCTION}], **DRAWN}
    items: list[Any] = [{"role": "user", "content": ASK}]
    forced = {**body, "input": items, "tool_choice": named if choice == "named" else "required"}
    first = post(client, "/v1/responses", forced)
    (call,) = (one for one in first["output"] if one["type"] == "function_call")
    assert json.loads(call["arguments"]) == ARGUMENTS
    items += [{**call, "arguments": MANGLED}]
    items += [{"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}]
    then = post(client, "/v1/responses", {**body, "input": items, "max_output_tokens": 2})
    n_cached = then["usage"]["input_tokens_details"]["cached_tokens"]
    return (first["usage"]["total_tokens"], 0), (then["usage"]["total_tokens"], n_cached)


def forced_in_messages(client: Client, choice: str) -> tuple[Turn, Turn]:
    tool = {"name": "read", "description": "Reads", "input_schema": PARAMETERS}
    body: dict[str, Any] = {"tools": [tool], "max_tokens": CALL_MAX, **DRAWN}
    messages: list[Any] = [{"role": "user", "content": ASK}]
    wanted = {"type": "tool", "name": "read"} if choice == "named" else {"type": "any"}
    first = post(client, "/v1/messages", {**body, "messages": messages, "tool_choice": wanted})
    (use,) = (one for one in first["content"] if one["type"] == "tool_use")
    assert use["input"] == ARGUMENTS
    messages += [{"role": "assistant", "content": [{**use, "input": dict(reversed(ARGUMENTS.items()))}]}]
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "fine"}
    messages += [{"role": "user", "content": [result]}]
    then = post(client, "/v1/messages", {**body, "messages": messages, "max_tokens": 2})

    def n_all(usage: dict[str, int]) -> int:
        return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["output_tokens"]

    return (n_all(first["usage"]), 0), (n_all(then["usage"]), then["usage"]["cache_read_input_tokens"])


@pytest.fixture(scope="module", params=["", "Qwen-Qwen2.5-7B-Instruct"])
def calling(request: Any, tiny: str) -> Iterator[Client]:
    """A server whose calls are in the format of a template."""
    flags = ("--chat-template-file", templates.path_of(request.param))
    with Live(
        "-np",
        "1",
        "-c",
        "2048",
        "--slots",
        "--api-key",
        "first",
        *(flags if request.param else ()),
        model=tiny,
    ) as live:
        yield live.client


@pytest.mark.parametrize("choice", ["required", "named"])
@pytest.mark.parametrize("dialect", [forced_in_chat, forced_in_responses, forced_in_messages])
def test_a_forced_call_is_cached_in_the_next_turn(calling: Client, dialect: Any, choice: str) -> None:
    (n_first, _), (n_then, n_cached) = dialect(calling, choice)
    assert n_then > n_first
    assert n_cached >= n_first - 1  # the token that ends a turn is not in the cache


@pytest.mark.parametrize("dialect", [forced_in_chat, forced_in_responses, forced_in_messages])
def test_reasoning_that_a_client_drops_is_put_back(dialect: Any) -> None:
    """The template of Qwen 3 keeps it in a loop of calls. Its text is the model's, so that all of it is cached."""
    call = json.dumps({"name": "read", "arguments": ARGUMENTS}, ensure_ascii=False)
    script = f"<think>\nLet me see.\n</think>\n\n<tool_call>\n{call}\n</tool_call>"
    flags = ("--chat-template-file", templates.path_of("Qwen-Qwen3-0.6B"))
    for more in ((), ("--no-replay",)):
        with Faked(Fake(script=script.encode(), n_ctx=16384), *flags, *more, n_ctx=16384) as server:
            (n_first, _), (_, n_cached) = dialect(server.client, "required")
        assert (n_cached >= n_first - 1) == (not more)


def test_a_call_in_ollamas_dialect_is_cached_in_the_next_turn(calling: Client) -> None:
    """Ollama has no forced calls, so a grammar writes one. Its clients send the arguments back as an object."""
    is_generic = "<tool_call>" not in calling.get("/props", headers=KEY).json["chat_template"]
    call = json.dumps({"name": "read", "arguments": ARGUMENTS}, ensure_ascii=False, separators=(", ", ":"))
    written = f'{{"tool_call": {call}}}' if is_generic else f"<tool_call>\n{call}\n</tool_call>"
    body = {"tools": [{"type": "function", "function": FUNCTION}], "stream": False}
    options = {**DRAWN, "grammar": f"root ::= {json.dumps(written, ensure_ascii=False)}"}
    messages: list[Any] = [{"role": "user", "content": "Read it."}]
    first = post(calling, "/api/chat", {**body, "messages": messages, "options": options})
    (made,) = first["message"]["tool_calls"]
    assert made["function"]["arguments"] == ARGUMENTS
    sent = {"function": {"name": "read", "arguments": dict(reversed(ARGUMENTS.items()))}}
    messages += [{"role": "assistant", "content": "", "tool_calls": [sent]}]
    messages += [{"role": "tool", "tool_name": "read", "content": "fine"}]
    post(calling, "/api/chat", {**body, "messages": messages, "options": {"num_predict": 2}})
    n_first = first["prompt_eval_count"] + first["eval_count"]
    n_cached = calling.get("/slots", headers=KEY).json[0]["n_prompt_tokens_cache"]
    assert n_cached >= n_first - 1


@pytest.mark.parametrize("limit", [{"n_predict": 0}, {"max_tokens": 0}])
def test_a_request_for_no_tokens_fills_the_cache(calling: Client, limit: dict[str, int]) -> None:
    """For a chat that is about to come, with its tools, and for a prompt."""
    messages = [{"role": "user", "content": f"Warm {json.dumps(limit)} " * 20}]
    chat = {"messages": messages, "tools": [{"type": "function", "function": FUNCTION}], **DRAWN}
    first = post(calling, "/v1/chat/completions", {**chat, **limit})
    assert first["usage"]["completion_tokens"] == 0
    assert first["choices"][0]["finish_reason"] == "length"
    assert first["choices"][0]["message"]["content"] in (None, "")
    then = post(calling, "/v1/chat/completions", {**chat, "max_tokens": 2})
    n_prompt = first["usage"]["prompt_tokens"]
    assert then["timings"]["cache_n"] == n_prompt - 1  # the last token of a prompt is always computed
    text = {"prompt": f"Read {json.dumps(limit)} " * 40}
    n_text = post(calling, "/completion", {**text, **limit})["tokens_evaluated"]
    assert post(calling, "/completion", {**text, "n_predict": 1})["timings"]["cache_n"] == n_text - 1


@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_of_calls_that_a_client_mangles(calling: Client, seed: int) -> None:
    """Each turn is sent back with other white space, arguments in another order and form, content that is null or in
    parts. Each next prompt has all tokens of the one before and its answer."""
    tools = [{"type": "function", "function": FUNCTION}]
    messages: list[Any] = [{"role": "user", "content": f"{ASK} {seed}"}]
    n_before = 0
    for turn in range(5):
        options: dict[str, Any] = {"tools": tools, "temperature": 1.0, "seed": 10 * seed + turn}
        options |= {"tool_choice": "required"} if turn % 3 != 2 else {"grammar": GRAMMAR}
        got = post(calling, "/v1/chat/completions", {"messages": messages, **options})
        assert got["timings"]["cache_n"] >= n_before - 1, turn
        n_before = got["usage"]["total_tokens"]
        message = got["choices"][0]["message"]
        assert message.get("tool_calls") or message["content"] == SAID
        messages += [
            mangled({"role": "assistant", **message, "content": message["content"] or ""}, seed + turn)
        ]
        for call in message.get("tool_calls", ()):
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": f"fine {turn}"}]
        if "tool_calls" not in message:
            messages += [{"role": "user", "content": "Go on."}]


def test_a_stored_response_is_continued(servers: dict[str, Client]) -> None:
    client = servers["replaying"]
    first = post(client, "/v1/responses", {"input": "Store it.", **OPTIONS})
    body = {"input": "And now?", "previous_response_id": first["id"], **OPTIONS}
    usage = post(client, "/v1/responses", body)["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] >= first["usage"]["total_tokens"] - 1
