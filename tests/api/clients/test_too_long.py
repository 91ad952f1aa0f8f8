"""A prompt that is too long: each dialect says so in the words by which its clients know that they have to compact."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from support.clients.official_clients import anthropic, ollama, openai
from support.fake_daemon import Faked
from support.http_client import Client

from llamad.api.openai.responses import ResponseDialect
from llamad.api.openai.responses_request import Given
from llamad.api.request.errors import too_long
from llamad.engine.testing.fake import Fake

N_CTX = 4096
# Much too long, so that it is refused before it is tokenized, and a little too long.
LONG = ("word " * 5000, "x" * N_CTX)
OLLAMA = r"^prompt too long; exceeded max context length by \d+ tokens"
ANTHROPIC = r"^prompt is too long: (\d+) tokens > (\d+) maximum"


@pytest.fixture(scope="module")
def server() -> Iterator[Faked]:
    with Faked(Fake(script=b"One.", n_ctx=N_CTX), "-np", "1", "-a", "smol", n_ctx=N_CTX) as made:
        yield made


@pytest.fixture
def client(server: Faked) -> Client:
    return server.client


def url_of(client: Client) -> str:
    return f"http://{client.host}:{client.port}"


@pytest.fixture
def official(client: Client) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url_of(client)}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("long", LONG, ids=["much", "little"])
@pytest.mark.parametrize("streamed", [False, True])
def test_responses(official: openai.OpenAI, streamed: bool, long: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        official.responses.create(model="smol", input=long, stream=streamed)
    assert caught.value.code == "context_length_exceeded"
    body: Any = caught.value.body
    assert body["type"] == "exceed_context_size_error"
    assert body["n_ctx"] == N_CTX
    assert body["n_prompt_tokens"] >= N_CTX


@pytest.mark.parametrize("path", ["/responses", "/v1/responses"])
def test_other_errors_of_responses_keep_their_codes(client: Client, path: str) -> None:
    assert client.post(path, {"input": "x" * N_CTX}).json["error"]["code"] == "context_length_exceeded"
    assert client.post(path, {"input": 5}).error["code"] == 400


@pytest.mark.parametrize("long", LONG, ids=["much", "little"])
@pytest.mark.parametrize("streamed", [False, True])
def test_chats_and_completions(official: openai.OpenAI, streamed: bool, long: str) -> None:
    messages: list[Any] = [{"role": "user", "content": long}]
    says = f"maximum context length is {N_CTX} tokens"
    with pytest.raises(openai.BadRequestError, match=says) as caught:
        official.chat.completions.create(model="smol", messages=messages, stream=streamed)
    error: Any = caught.value.body
    assert (error["code"], error["type"]) == (400, "exceed_context_size_error")
    with pytest.raises(openai.BadRequestError, match=says):
        official.completions.create(model="smol", prompt=long, stream=streamed)


@pytest.mark.parametrize("long", LONG, ids=["much", "little"])
@pytest.mark.parametrize("streamed", [False, True])
def test_messages(client: Client, streamed: bool, long: str) -> None:
    official = anthropic.Anthropic(base_url=url_of(client), api_key="none", max_retries=0)
    asked: list[Any] = [{"role": "user", "content": long}]
    with pytest.raises(anthropic.BadRequestError) as caught:
        official.messages.create(model="smol", max_tokens=8, messages=asked, stream=streamed)
    body: Any = caught.value.body
    assert body["error"]["type"] == "invalid_request_error"
    numbers = re.match(ANTHROPIC, body["error"]["message"])
    assert numbers, body
    n_prompt, n_max = map(int, numbers.groups())
    assert n_prompt > n_max
    assert N_CTX - 1 <= n_max <= N_CTX


def test_a_prompt_as_long_as_the_context(client: Client) -> None:
    """There is no room for an answer, so the largest prompt is shorter than the context."""
    one, two = (
        client.post("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x" * n}]}).json
        for n in (1, 2)
    )
    assert two["input_tokens"] == one["input_tokens"] + 1
    text = "x" * (N_CTX - one["input_tokens"] + 1)
    answer = client.post("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": text}]})
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith(
        f"prompt is too long: {N_CTX} tokens > {N_CTX - 1} maximum"
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_ollama(client: Client, streamed: bool) -> None:
    official = ollama.Client(host=url_of(client))
    with pytest.raises(ollama.ResponseError, match=OLLAMA) as caught:
        list(official.chat("smol", [{"role": "user", "content": LONG[0]}], stream=streamed))
    assert caught.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match=OLLAMA):
        list(official.generate("smol", LONG[0], stream=streamed))


def test_a_stream_that_has_begun_ends_with_the_failed_response() -> None:
    """Codex looks there for the reason."""
    chat: Any = type("Chat", (), {"model": "smol"})()
    generation: Any = type("Options", (), {"temperature": 1.0, "top_p": 1.0})()
    dialect = ResponseDialect(chat, Given({}, None, {}), generation)
    events = [
        json.loads(one.partition(b"data: ")[2])
        for one in dialect.failed(too_long(5000, N_CTX)).split(b"\n\n")
        if one
    ]
    assert [one["type"] for one in events] == ["response.failed", "error"]
    failed, error = events
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == error["code"] == error["error"]["code"]
    assert error["code"] == "context_length_exceeded"
