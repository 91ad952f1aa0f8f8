"""LLaMAfiler's page about chat completions as a checklist: what it says holds here.

Decided otherwise: defaults of sampling and ranges are this server's, `model` is optional, no content type is enforced,
and what the page calls unsupported works.
"""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any

import pytest
from support.live_daemon import Live

PATH = "/v1/chat/completions"
SAY = [{"role": "user", "content": "Say hello to my cat."}]
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACH5BAEAAAAALAAAAAABAAEAAAICRAEAOw=="
NULLABLE = (
    "stream max_tokens max_completion_tokens top_p temperature seed presence_penalty frequency_penalty user stop"
    " response_format n tools audio logprobs functions modalities tool_choice top_logprobs function_call"
    " parallel_tool_calls model stream_options logit_bias store metadata service_tier reasoning_effort prediction"
).split()


def ask(client: Any, messages: Any = SAY, **options: Any) -> Any:
    """Greedy, and read whole: texts that are compared must not hang on what the cache has."""
    body = {"messages": messages, "max_tokens": 6, "temperature": 0, "cache_prompt": False, **options}
    answer = client.post(PATH, body)
    assert answer.status == 200, answer.body
    return answer.json


def text_of(answer: Any) -> str:
    return answer["choices"][0]["message"]["content"]


def test_method_and_model(client: Any) -> None:
    answer = client.get(PATH)
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]
    assert ask(client, model="LLaMA_CPP")["model"] == "LLaMA_CPP"
    assert ask(client)["model"] == "smol"


def test_roles_and_messages(client: Any) -> None:
    talk = [
        {"role": "system", "content": "You are a *poet*."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        *SAY,
    ]
    answer = ask(client, talk)
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert text_of(answer)
    for wrong in ({"messages": []}, {}, {"messages": "hi"}, {"messages": [{"role": "user"}]}):
        assert client.post(PATH, wrong).status == 400


def test_history_is_cached(client: Any) -> None:
    """The client appends the answer and asks again: what was said before is not read again."""
    first = ask(client, max_tokens=4, cache_prompt=True)
    talk = [*SAY, first["choices"][0]["message"], {"role": "user", "content": "And to my dog?"}]
    second = ask(client, talk, cache_prompt=None)  # the default
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens"] <= cached < second["usage"]["prompt_tokens"]
    assert second["timings"]["cache_n"] == cached
    fresh = ask(client, talk)  # an expired history is read whole
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_best_matching_slot(tiny: str) -> None:
    """The slot with the longest common beginning is taken; when all are busy, one waits."""
    talks = [[{"role": "user", "content": letter * 200}] for letter in "ab"]
    with Live("-np", "2", "-c", "2048", "--slots", model=tiny) as server:
        for talk in talks:
            ask(server.client, talk, cache_prompt=True)
        for talk in talks[::-1]:
            usage = ask(server.client, talk, cache_prompt=True)["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1
        answers: list[Any] = []
        threads = [
            threading.Thread(target=lambda: answers.append(ask(server.client, max_tokens=16)))
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 5


def test_stream(client: Any) -> None:
    connection = http.client.HTTPConnection(client.host, client.port, timeout=60)
    body = {"messages": SAY, "max_tokens": 6, "temperature": 0, "cache_prompt": False, "stream": True}
    connection.request("POST", PATH, json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["Transfer-Encoding"] == "chunked"
    lines = [line for line in response.read().decode().split("\n\n") if line]
    connection.close()
    choices = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-1]]
    assert all("delta" in choice and "message" not in choice for choice in choices)
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert text == text_of(ask(client))


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_limit(client: Any, name: str) -> None:
    answer = ask(client, **{"max_tokens": None, name: 3})
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["choices"][0]["finish_reason"] == "length"


def test_sampling(client: Any) -> None:
    warm = {"temperature": 1.5, "max_tokens": 12}
    one, same, other = [text_of(ask(client, seed=seed, **warm)) for seed in (3, 3, 4)]
    assert one == same != other
    greedy = text_of(ask(client, max_tokens=12))
    assert text_of(ask(client, **{**warm, "top_p": 0.0001}, top_k=0, min_p=0)) == greedy
    assert ask(client, top_p=1, temperature=2, presence_penalty=-2, frequency_penalty=2.0, user="me")
    penalized = {
        "messages": SAY,
        "max_tokens": 24,
        "temperature": 0,
        "repeat_last_n": -1,
        "cache_prompt": False,
    }
    tokens = [
        client.post(PATH, {**penalized, name: value, "return_tokens": True}).json["choices"][0]["tokens"]
        for name in ("presence_penalty", "frequency_penalty")
        for value in (0, 20)
    ]
    assert len(set(tokens[1])) == len(set(tokens[3])) == 24  # nothing twice
    assert tokens[0] == tokens[2] != tokens[1]


def test_stops(client: Any) -> None:
    forced = {"grammar": 'root ::= "one two three four"', "max_tokens": 12}
    assert text_of(ask(client, stop=" three", **forced)) == "one two"
    assert text_of(ask(client, stop=["x", "y", " four", " three"], **forced)) == "one two"
    assert text_of(ask(client, stop=["six", "five", "seven", "eight", " two"], **forced)) == "one"


def test_response_format(client: Any) -> None:
    plain = text_of(ask(client))
    assert text_of(ask(client, response_format="auto")) == plain
    assert client.post(PATH, {"messages": SAY, "response_format": "json"}).status == 400
    say = [{"role": "user", "content": 'Answer with the JSON {"hi": 123}.'}]
    assert text_of(ask(client, say, response_format={"type": "json_object"})).startswith("{")
    schema = {"type": "object", "properties": {"hi": {"enum": [1, 2]}}, "required": ["hi"]}
    form = {"type": "json_schema", "json_schema": {**schema, "additionalProperties": False}}
    assert json.loads(text_of(ask(client, say, response_format=form, max_tokens=32)))["hi"] in (1, 2)


def test_null_is_the_default(client: Any) -> None:
    plain = text_of(ask(client))
    for name in NULLABLE:
        if name not in ("max_tokens", "temperature"):
            assert text_of(ask(client, **{name: None})) == plain, name
    nothing: dict[str, Any] = dict.fromkeys(NULLABLE)
    answer = client.post(PATH, {**nothing, "messages": SAY, "max_completion_tokens": 2})
    assert answer.status == 200, answer.body
    assert answer.json["usage"]["completion_tokens"] == 2
    talk = [{**SAY[0], "name": None}, {"role": "assistant", "content": "Hi", "tool_calls": None}, *SAY]
    assert text_of(ask(client, talk))


def test_functions_are_tools(client: Any) -> None:
    functions = [{"name": "greet", "parameters": {"type": "object", "properties": {"n": {"enum": [1]}}}}]
    answer = ask(client, functions=functions, function_call={"name": "greet"}, max_tokens=48)
    call = answer["choices"][0]["message"]["tool_calls"][0]
    assert call["function"]["name"] == "greet"
    assert set(json.loads(call["function"]["arguments"])) <= {"n"}
    quiet = ask(client, functions=functions, function_call="none")["choices"][0]["message"]
    assert "tool_calls" not in quiet
    talk = [
        *SAY,
        {"role": "assistant", "content": None, "function_call": {"name": "greet", "arguments": "{}"}},
        {"role": "function", "name": "greet", "content": "done"},
    ]
    assert ask(client, talk, functions=functions, function_call="none")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"audio": {"voice": "alloy", "format": "wav"}}, '"audio"'),
        ({"modalities": ["audio"]}, '"modalities"'),
        ({"modalities": ["text", "audio"]}, '"modalities"'),
        ({"modalities": "text"}, '"modalities"'),
        ({"user": 5}, '"user"'),
        ({"stream": "yes"}, '"stream"'),
        ({"seed": "x"}, '"seed"'),
        ({"presence_penalty": "x"}, '"presence_penalty"'),
        ({"parallel_tool_calls": 1}, '"parallel_tool_calls"'),
    ],
)
def test_wrong(client: Any, options: dict[str, Any], says: str) -> None:
    answer = client.post(PATH, {"messages": SAY, "max_tokens": 1, **options})
    assert answer.status == 400
    assert says in answer.error["message"]


def test_data_uri_without_a_vision_model(client: Any) -> None:
    """Without --mmproj nobody looks for images in a text: it stays what it is."""
    text = f"What is this? ![1x1.gif]({PIXEL})"
    say = [{"role": "user", "content": text}]
    assert text in client.post("/apply-template", {"messages": say}).json["prompt"]
    assert text_of(ask(client, say))
