"""Texts that are long to tokenize, on the real program: their senders wait, or are refused, and nobody else notices."""

import http.client
import json
import time

import pytest
from support.live_daemon import Live

SECONDS = 20  # generous: a normal request takes a fraction of one
NORMAL = "The quick brown fox jumps over the lazy dog. " * 40  # goes to a worker
HOSTILE = "<|im_end|>" * 400_000  # four megabytes: hours, as llama.cpp splits them
SLOW = " " * 900_000  # one word, which has to be merged in one: seconds
FLAGS = ("-c", "4096", "-np", "2")


@pytest.fixture(scope="module")
def server(tiny):
    with Live(*FLAGS, model=tiny, watched=True) as live:
        live.client.complete(NORMAL, n_predict=1)  # prefilled once, so that tokenizing is what takes time
        yield live


def send(client, path: str, body: dict) -> http.client.HTTPConnection:
    """A request whose answer nobody reads yet."""
    connection = http.client.HTTPConnection(client.host, client.port, timeout=120)
    connection.request("POST", path, json.dumps(body))
    return connection


def timed(work) -> float:
    t_start = time.monotonic()
    work()
    return time.monotonic() - t_start


ATTACKS = {
    "completion": ("/completion", {"prompt": HOSTILE, "n_predict": 1}),
    "completions": ("/v1/completions", {"prompt": HOSTILE, "max_tokens": 1}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": HOSTILE}], "max_tokens": 1}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": HOSTILE}], "max_tokens": 1}),
    "parts": ("/completion", {"prompt": [1, HOSTILE], "n_predict": 1}),
    "system prompt": ("/completion", {"prompt": "x", "system_prompt": HOSTILE, "n_predict": 1}),
    "responses": ("/v1/responses", {"input": HOSTILE, "max_output_tokens": 1}),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenized(server, name):
    path, body = ATTACKS[name]
    answers = []
    assert timed(lambda: answers.append(server.client.post(path, body))) < SECONDS
    if answers[0].status == 404:
        pytest.skip("no such endpoint")
    assert answers[0].status == 400
    refusal = "prompt is too long" if name == "messages" else "more than"
    assert refusal in json.dumps(answers[0].json)


@pytest.mark.parametrize(
    ("path", "field"), [("/tokenize", "content"), ("/v1/messages/count_tokens", "messages")]
)
def test_what_is_only_counted_takes_no_longer_than_it_must(server, path, field):
    body = {field: HOSTILE if field == "content" else [{"role": "user", "content": HOSTILE}], "max_tokens": 1}
    assert timed(lambda: server.client.post(path, body)) < SECONDS


@pytest.mark.parametrize("path", ["/tokenize", "/completion"])
def test_normal_prompts_are_answered_while_slow_texts_are_tokenized(server, path):
    slow = SLOW if path == "/tokenize" else SLOW[:160_000]  # as much as may fit
    body = {"content": slow} if path == "/tokenize" else {"prompt": slow, "n_predict": 0}
    hostile = [send(server.client, path, body) for _ in range(4)]
    try:
        for _ in range(3):
            assert timed(lambda: server.client.complete(NORMAL, n_predict=1)) < SECONDS
            assert timed(lambda: server.client.post("/tokenize", {"content": NORMAL * 10})) < SECONDS
            assert timed(lambda: server.client.get("/health")) < SECONDS
    finally:
        for connection in hostile:
            connection.close()


def test_what_a_client_that_left_has_sent_is_not_tokenized_to_the_end(server):
    """Ten slow texts, whose senders leave: one more is answered long before they could have been."""
    piece = "".join(f"<|im_end|>{i:x}." for i in range(200_000))
    for _ in range(10):
        connection = send(server.client, "/tokenize", {"content": piece})
        time.sleep(0.2)
        connection.close()
    assert timed(lambda: server.client.post("/tokenize", {"content": NORMAL * 100})) < SECONDS


def test_a_long_penalty_prompt_is_answered_as_a_short_one(server):
    body = {"prompt": "x", "n_predict": 1, "penalty_prompt": "some words " * 5000, "repeat_penalty": 1.1}
    used = server.client.post("/completion", body).json["generation_settings"]["penalty_prompt_tokens"]
    assert len(used) == 2048  # as many as a slot's context holds
    words = server.client.post("/tokenize", {"content": "some words some words "}).json["tokens"]
    assert used[-4:] == words[-4:]


def test_infill_keeps_the_end_of_a_long_prefix_and_the_beginning_of_a_long_suffix(server):
    answer = server.client.post(
        "/infill", {"input_prefix": HOSTILE + "def f(", "input_suffix": "):\n" + HOSTILE, "n_predict": 1}
    )
    assert answer.status in (200, 501)


def test_too_many_counted_texts_are_refused(tiny):
    with Live(*FLAGS, "--queue-max", "2", model=tiny) as live:
        waiting = [send(live.client, "/tokenize", {"content": SLOW[:300_000]}) for _ in range(6)]
        statuses = [connection.getresponse().status for connection in waiting]
    assert set(statuses) == {200, 429}


@pytest.fixture(scope="module")
def embedding(tiny):
    with Live(*FLAGS, "--embeddings", "--pooling", "mean", model=tiny) as live:
        yield live.client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": HOSTILE}),
        ("/v1/embeddings", {"input": ["x", [1, HOSTILE]]}),
        ("/embedding", {"content": HOSTILE}),
    ],
)
def test_a_text_that_cannot_be_embedded_is_refused_before_it_is_tokenized(embedding, path, body):
    answers = []
    assert timed(lambda: answers.append(embedding.post(path, body))) < SECONDS
    assert answers[0].status == 400
    assert "tokens, but at most" in answers[0].error["message"]
