"""Errors under /v1/messages have Anthropic's shape on every path, and reach the client as its own exceptions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.clients.official_clients import anthropic
from support.live_daemon import Live

from llamad.api.anthropic.messages import MessageDialect
from llamad.api.anthropic.request import Thinking
from llamad.api.request.errors import ApiError, queue_full
from llamad.api.service import error_dialects as errors

HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def error_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status == status, answer.body
    body = answer.json
    assert body["type"] == "error"
    assert body["request_id"] == answer.headers["x-request-id"]
    return body["error"]


WRONG = [
    ({"max_tokens": 0, "messages": HELLO}, 400, "max_tokens"),
    ({"max_tokens": 4}, 400, "messages"),
    ({"max_tokens": 4, "messages": [{"role": "robot", "content": "x"}]}, 400, "[0]"),
    ({"max_tokens": 4, "messages": [{"role": "user", "content": []}]}, 400, "no content"),
    ({"max_tokens": 4, "messages": [{"role": "user", "content": [IMAGE]}]}, 501, "image"),
    ({"max_tokens": 4, "messages": HELLO, "tools": [{"name": "a"}]}, 400, "input_schema"),
    ({"max_tokens": 4, "messages": HELLO, "tool_choice": {"type": "any"}}, 400, "tool_choice"),
    ({"max_tokens": 4, "messages": HELLO, "tool_choice": "auto"}, 400, "tool_choice"),
    ({"max_tokens": 4, "messages": HELLO, "thinking": {"type": "maybe"}}, 400, "thinking"),
    ({"max_tokens": 4, "messages": HELLO, "stop": ["x"]}, 400, '"stop"'),
    ({"max_tokens": 4, "messages": HELLO, "n_probs": 2}, 400, "n_probs"),
    ({"max_tokens": 4, "messages": HELLO, "system": 1}, 400, "system"),
    ({"max_tokens": 4, "messages": HELLO, "temperature": "warm"}, 400, "temperature"),
    ({"max_tokens": 4, "messages": HELLO, "grammar": "root ::= ("}, 400, "grammar"),
]


@pytest.mark.parametrize(("body", "status", "named"), WRONG)
def test_wrong_requests(client: Any, body: Any, status: int, named: str) -> None:
    error = error_of(client.post("/v1/messages", body), status)
    assert error["type"] == "invalid_request_error"
    assert named in error["message"]


def test_other_paths(client: Any) -> None:
    assert error_of(client.post("/v1/messages", b"{"), 400)["type"] == "invalid_request_error"
    assert error_of(client.get("/v1/messages"), 405)["type"] == "invalid_request_error"
    assert error_of(client.post("/v1/messages/batches"), 404)["type"] == "not_found_error"
    assert error_of(client.post("/v1/messages/count_tokens", {"messages": 1}), 400)["message"]
    assert client.post("/v1/messagesx").error["type"] == "not_found_error"  # nobody's path: the usual shape


def test_typed(official: anthropic.Anthropic) -> None:
    long: list[Any] = [{"role": "user", "content": "word " * 5000}]
    with pytest.raises(anthropic.BadRequestError, match="shorten the prompt") as caught:
        official.messages.create(model="any", max_tokens=4, messages=long)
    assert caught.value.request_id
    image: list[Any] = [{"role": "user", "content": [IMAGE]}]
    patient = official.with_options(max_retries=2)
    with pytest.raises(anthropic.InternalServerError, match="text only") as refused:
        patient.messages.create(model="any", max_tokens=4, messages=image)
    assert refused.value.request.headers["x-stainless-retry-count"] == "0"


def test_key_and_size(tiny: str) -> None:
    with Live(
        "--api-key", "secret", "-c", "256", "--body-max-bytes", "4096", "--n-predict-max", "64", model=tiny
    ) as server:
        url = f"http://{server.client.host}:{server.client.port}"
        wrong = anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0)
        with pytest.raises(anthropic.AuthenticationError, match="authentication_error"):
            wrong.messages.create(model="any", max_tokens=4, messages=HELLO)
        right = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)
        assert right.messages.create(model="any", max_tokens=4, messages=HELLO).usage.output_tokens
        with pytest.raises(anthropic.BadRequestError, match=r"max_tokens.*n-predict-max"):
            right.messages.create(model="any", max_tokens=65, messages=HELLO)
        with pytest.raises(anthropic.APIStatusError, match="request_too_large") as caught:
            right.messages.create(
                model="any", max_tokens=4, messages=[{"role": "user", "content": "x" * 9000}]
            )
        assert caught.value.status_code == 413


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, "permission_error"),
        (408, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (501, "invalid_request_error"),
        (503, "overloaded_error"),
    ],
)
def test_types(status: int, kind: str) -> None:
    assert msgspec.json.decode(errors.anthropic_body(ApiError(status, "no"), "id"))["error"]["type"] == kind


def test_a_refusal_says_when_to_come_again() -> None:
    assert ("Retry-After", "1") in errors.anthropic_response(queue_full(), "id").headers


def test_a_stream_that_breaks_off_ends_with_an_event() -> None:
    chat: Any = None
    dialect = MessageDialect(chat, Thinking(True, False), "id")
    name, data = dialect.failed(ApiError(500, "broken")).rstrip(b"\n").split(b"\n")
    assert name == b"event: error"
    assert msgspec.json.decode(data.removeprefix(b"data: ")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "broken"},
        "request_id": "id",
    }
