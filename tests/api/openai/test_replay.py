"""Turns that come back have the tokens that were generated, in all dialects of chats. The model has random weights, so
its tokens of a text are others than the tokenizer's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.http_client import Client
from support.live_daemon import Live

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


DIALECTS = (in_chat, in_responses, in_messages)


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
