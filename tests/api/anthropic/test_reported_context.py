"""--report-context: the counts of Anthropic's dialect are in proportion to the context that its clients assume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.clients.official_clients import anthropic
from support.fake_daemon import Faked
from support.http_client import Client

from llamad.engine.testing.fake import Fake

N_CTX, N_REPORTED = 4096, 200_000
HELLO: list[Any] = [{"role": "user", "content": "Say hello to everybody in this room."}]


def scaled(n_tokens: int, n_ctx: int = N_CTX) -> int:
    return -(-n_tokens * N_REPORTED // n_ctx)


def serving(*flags: str) -> Faked:
    fake = Fake(script=b"One two three.", n_ctx=N_CTX)
    return Faked(fake, "-np", "1", "-a", "smol", *flags, n_ctx=N_CTX)


@pytest.fixture(scope="module")
def true_counts() -> Iterator[Client]:
    with serving() as made:
        yield made.client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving("--report-context", str(N_REPORTED)) as made:
        yield made.client


def official(client: Client) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=f"http://{client.host}:{client.port}", api_key="none", max_retries=0)


def total(usage: anthropic.types.Usage) -> int:
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_usage_and_counts(client: Client, true_counts: Client) -> None:
    ask: Any = {"model": "smol", "messages": HELLO}
    true = official(true_counts).messages.create(max_tokens=8, **ask).usage
    told = official(client).messages.create(max_tokens=8, **ask).usage
    assert total(told) == scaled(total(true)) > 10 * total(true)
    assert told.output_tokens == scaled(true.output_tokens)
    counted = official(client).messages.count_tokens(**ask).input_tokens
    assert counted == total(told)
    with official(client).messages.stream(max_tokens=8, **ask) as stream:
        streamed = stream.get_final_message().usage
    assert total(streamed) == total(told)
    assert streamed.output_tokens == told.output_tokens
    assert streamed.cache_read_input_tokens


def test_a_stream_begins_with_the_same_counts(client: Client) -> None:
    body = {"max_tokens": 8, "messages": HELLO, "stream": True}
    lines = client.post("/v1/messages", body).body.split(b"\n")
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
    usages = [events[0]["message"]["usage"], events[-2]["usage"]]
    sums = {one["input_tokens"] + one["cache_read_input_tokens"] for one in usages}
    assert len(sums) == 1


def test_other_dialects_count_what_there_is(client: Client, true_counts: Client) -> None:
    for path, body, key in (
        ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 4}, "prompt_tokens"),
        ("/v1/responses", {"input": HELLO, "max_output_tokens": 4}, "input_tokens"),
    ):
        assert (
            client.post(path, body).json["usage"][key]
            == true_counts.post(path, body).json["usage"][key]
            < 200
        )
    path, body = "/v1/chat/completions/input_tokens", {"messages": HELLO}
    assert client.post(path, body).json == true_counts.post(path, body).json


def test_the_models_tell_the_same_scale(client: Client, true_counts: Client) -> None:
    for one, n_told in ((client, N_REPORTED), (true_counts, N_CTX)):
        (listed,) = official(one).models.list()
        assert listed.max_input_tokens == n_told
        assert official(one).models.retrieve("smol").max_input_tokens == n_told
        # Everywhere else the context is the true one.
        (entry,) = one.get("/v1/models").json["data"]
        assert entry["context_length"] == entry["meta"]["n_ctx"] == N_CTX
        assert one.get("/v1/models/smol").json["context_length"] == N_CTX
        assert one.get("/props").json["default_generation_settings"]["n_ctx"] == N_CTX


def test_a_prompt_that_does_not_fit_is_told_in_true_tokens(client: Client) -> None:
    """Claude Code compares them with its own estimate of what it drops."""
    body = {"max_tokens": 8, "messages": [{"role": "user", "content": "x" * 9000}]}
    message = client.post("/v1/messages", body).json["error"]["message"]
    assert f"> {N_CTX} maximum" in message
