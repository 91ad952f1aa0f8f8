"""The clients of a gateway: single chats, and a load of chats that records every failure.

Each client of the load is a thread of the caller's process, with a connection for each request. A failure is what a
client sees: no response, a response that is cut off, an error event in a stream, a stream that ends without [DONE].
"""

from __future__ import annotations

import http.client
import json
import threading
import time
import uuid
from dataclasses import dataclass
from typing import Any

from bench.client import Address
from bench.gateways.programs import WAIT_SECONDS, until

PATH = "/v1/chat/completions"
MODEL = "llm"
KEY = {"Authorization": "Bearer k", "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed request; `has_begun` means that a part of the response had arrived."""

    request_id: str
    has_begun: bool
    reason: str


class BrokenError(Exception):
    """The response is not complete."""


@dataclass(slots=True)
class Answer:
    """What has arrived of a response: the body, and when its first byte came (`time.perf_counter`)."""

    status: int = 0
    body: bytes = b""
    t_first: float = 0.0


def chat(messages: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages, **options}


def ask(address: Address, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
    """Return the whole response of a chat without a stream."""
    answer = Answer()
    read(address, body, headers or {}, answer)
    return json.loads(answer.body)


def read(address: Address, body: dict[str, Any], headers: dict[str, str], into: Answer) -> None:
    """Read a response to its end. Raises an exception if it is not complete."""
    connection = http.client.HTTPConnection(*address, timeout=WAIT_SECONDS)
    try:
        connection.request("POST", PATH, json.dumps(body).encode(), KEY | headers)
        response = connection.getresponse()
        into.status = response.status
        while piece := response.read1(65536):  # raises if the body is cut off
            into.t_first = into.t_first or time.perf_counter()
            into.body += piece
    finally:
        connection.close()
    if into.status != 200:
        raise BrokenError(f"{into.status} {into.body[:300]!r}")
    if body.get("stream"):
        if b'data: {"error"' in into.body:
            raise BrokenError("an error event")
        if not into.body.endswith(b"data: [DONE]\n\n"):
            raise BrokenError("no [DONE]")


class Load:
    """Clients that each send one request after another until they are stopped, always with a new conversation, some
    with streams and some without."""

    def __init__(self, address: Address, n_streaming: int, n_plain: int, max_tokens: int) -> None:
        self.done: list[str] = []  # the ids of requests with a complete response
        self.failed: list[Failure] = []
        self._address = address
        self._max_tokens = max_tokens
        self._is_over = threading.Event()
        kinds = [True] * n_streaming + [False] * n_plain
        self._threads = [threading.Thread(target=self._run, args=(is_streaming,)) for is_streaming in kinds]

    def _run(self, is_streaming: bool) -> None:
        while not self._is_over.is_set():
            self._one(is_streaming)

    def _one(self, is_streaming: bool) -> None:
        request_id = uuid.uuid4().hex
        body = chat(
            [{"role": "user", "content": f"{request_id} hello"}],
            max_tokens=self._max_tokens,
            ignore_eos=True,
            stream=is_streaming,
        )
        answer = Answer()
        try:
            read(self._address, body, {"X-Request-Id": request_id}, answer)
            self.done.append(request_id)
        except (OSError, http.client.HTTPException, BrokenError) as error:
            self.failed.append(Failure(request_id, answer.t_first > 0, f"{type(error).__name__}: {error}"))

    def wait_more(self, n: int) -> None:
        """Wait until `n` more responses are complete."""
        target = len(self.done) + n
        until(lambda: len(self.done) >= target, f"{n} more answers; failed: {self.failed[:3]}")

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
