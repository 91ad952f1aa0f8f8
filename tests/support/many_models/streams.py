"""What goes on in the background of a test: calls, streamed chats, and the events of GET /models/sse."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from support.http_client import TIMEOUT, Client
from support.many_models.calls import CHAT


class Background:
    """A call in a thread of its own. result() waits for it and raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        return self._result


class Stream:
    """A streamed chat that has begun. It is read in the background."""

    def __init__(self, client: Client, body: Mapping[str, Any]) -> None:
        more = {"stream": True, "stream_options": {"include_usage": True}}
        self._events = _chat_events(client, {**body, **more})
        self._first = next(self._events)
        self._rest = Background(lambda: list(self._events))

    @property
    def is_running(self) -> bool:
        return self._rest.is_running

    def finish(self) -> tuple[str | None, int]:
        """Return why it has ended, and its number of tokens."""
        every = [self._first, *self._rest.result()]
        assert not [one for one in every if "error" in one], every[-1]
        reasons = [choice["finish_reason"] for one in every for choice in one["choices"]]
        return reasons[-1], every[-1]["usage"]["completion_tokens"]


def _chat_events(client: Client, body: Mapping[str, Any]) -> Any:
    connection = http.client.HTTPConnection(client.host, client.port, timeout=TIMEOUT)
    try:
        connection.request("POST", CHAT, json.dumps(body).encode(), client.headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        for line in response:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[6:])
    finally:
        connection.close()


class Events:
    """The events of GET /models/sse, read in the background until close()."""

    def __init__(self, client: Client) -> None:
        self.events: list[dict[str, Any]] = []
        self._connection = http.client.HTTPConnection(client.host, client.port, timeout=TIMEOUT)
        self._connection.request("GET", "/models/sse", headers=client.headers)
        self._sock = self._connection.sock
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        assert (self._response.getheader("Content-Type") or "").startswith("text/event-stream")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._response:
                if line.startswith(b"data: "):
                    self.events.append(json.loads(line[6:]))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass

    def of(self, model: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one["model"] == model]

    def statuses(self, model: str) -> list[str]:
        """The statuses of a model in the order in which they were told, each once."""
        told: list[str] = []
        for one in self.of(model):
            value = one.get("data", {}).get("status")
            if value is not None and told[-1:] != [value]:
                told.append(value)
        return told

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()
