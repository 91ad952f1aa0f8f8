"""What clients say about their prompts reaches the engine, in each dialect's words, and never fails a request."""

from typing import Any

import pytest
from support.fake_daemon import Faked

from llamad.api.request.cache_hints import of_blocks
from llamad.api.request.ignored_fields import HEADER
from llamad.engine.testing.fake import Fake

NATIVE, CHAT, TEXT, RESPONSES, MESSAGES = (
    "/completion",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
)
SHORT, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def said(control: Any, text: str = "Hi") -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "text", "text": text, "cache_control": control}]}]


BODIES: dict[str, dict[str, Any]] = {
    NATIVE: {"prompt": "Hi"},
    TEXT: {"prompt": "Hi"},
    CHAT: {"messages": [{"role": "user", "content": "Hi"}]},
    RESPONSES: {"input": "Hi"},
    MESSAGES: {"messages": [{"role": "user", "content": "Hi"}]},
}
TOOL = {"name": "look", "input_schema": {"type": "object"}}


@pytest.fixture(scope="module")
def server():
    with Faked(Fake(n_ctx=2048), n_ctx=2048) as made:
        yield made


@pytest.fixture
def told(server, monkeypatch):
    """The retention of every task that is submitted."""
    seen: list[int] = []
    submit = type(server.engine).submit

    def spied(engine, task, *args, **more):
        seen.append(task.context.retention_s)
        return submit(engine, task, *args, **more)

    monkeypatch.setattr(type(server.engine), "submit", spied)
    return seen


@pytest.mark.parametrize(
    ("path", "more", "seconds"),
    [
        (NATIVE, {}, 0),
        (NATIVE, {"cache_prompt": False}, -1),
        (TEXT, {"prompt_cache_key": "talk-1"}, 600),
        (CHAT, {"prompt_cache_key": "talk-1"}, 600),
        (RESPONSES, {"prompt_cache_key": "talk-1"}, 600),
        (CHAT, {"prompt_cache_key": ""}, 0),
        (CHAT, {"prompt_cache_retention": "24h"}, 86400),
        (CHAT, {"prompt_cache_retention": "in_memory", "prompt_cache_key": "a"}, 3600),
        (RESPONSES, {"prompt_cache_retention": "in-memory"}, 3600),
        (CHAT, {"messages": said(HOUR)}, 3600),
        (RESPONSES, {}, 0),
        (MESSAGES, {}, 0),
        (MESSAGES, {"cache_control": SHORT}, 300),
        (MESSAGES, {"messages": said(SHORT)}, 300),
        (MESSAGES, {"system": [{"type": "text", "text": "Be kind.", "cache_control": HOUR}]}, 3600),
        (MESSAGES, {"tools": [{**TOOL, "cache_control": HOUR}], "messages": said(SHORT)}, 3600),
        (MESSAGES, {"messages": said({"type": "other", "ttl": "1h"})}, 0),
        (MESSAGES, {"messages": said("yes")}, 0),
        (MESSAGES, {"messages": said({"type": "ephemeral", "ttl": 5})}, 300),
        (MESSAGES, {"messages": said(None), "cache_control": [1, None]}, 0),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_hint_reaches_the_engine(server, told, path, more, seconds, stream):
    length = "max_output_tokens" if path == RESPONSES else "max_tokens"
    answer = server.client.post(path, {**BODIES[path], length: 1, "stream": stream, **more})
    assert answer.status == 200, answer.body
    assert HEADER.lower() not in answer.headers
    assert told == [seconds]


@pytest.mark.parametrize("path", [TEXT, CHAT, RESPONSES])
@pytest.mark.parametrize("name", ["prompt_cache_key", "prompt_cache_retention"])
@pytest.mark.parametrize("value", [5, ["a"], {"a": 1}, True])
def test_a_hint_that_says_nothing_known_is_named_and_costs_nothing(server, told, path, name, value):
    length = "max_output_tokens" if path == RESPONSES else "max_tokens"
    answer = server.client.post(path, {**BODIES[path], length: 1, name: value})
    assert answer.status == 200, answer.body
    assert answer.headers[HEADER.lower()] == name
    assert told == [0]


def test_clients_cannot_set_the_hint_itself(server, told):
    for value in (5, None, {"seconds": 10**9}, "x"):
        answer = server.client.post(CHAT, {**BODIES[CHAT], "max_tokens": 1, "cache_hint": value})
        assert answer.status in (200, 400)
    assert set(told) <= {0}


def test_what_is_no_block_is_left_to_others():
    for value in (None, "text", 5, [None, 5, [], "x"], [{"content": [5, None, "x"]}], [{"content": {}}]):
        assert of_blocks(value) == 0
