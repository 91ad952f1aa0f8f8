"""A small HTTP client for tests: plain sockets through http.client, JSON in and out, server-sent events."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Generator
from typing import Any

TIMEOUT = 300


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json["error"]
        assert error["code"] == self.status
        return error


class Client:
    """Talks to one server; a connection for each request."""

    def __init__(
        self,
        host: str,
        port: int,
        headers: dict[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        timeout: float | None = TIMEOUT,
    ) -> None:
        """`context`: for a server that speaks TLS."""
        self.host = host
        self.port = port
        self.headers = headers or {}
        self.context = context
        self.timeout = timeout

    def _connection(self) -> http.client.HTTPConnection:
        if self.context is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        return http.client.HTTPSConnection(self.host, self.port, timeout=self.timeout, context=self.context)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = self._connection()
        try:
            data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
            connection.request(method, path, data, {**self.headers, **(headers or {})})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.request("POST", path, {} if body is None else body, **options)

    def complete(self, prompt: Any, **options: Any) -> Any:
        """POST /completion, which must succeed."""
        answer = self.post("/completion", {"prompt": prompt, **options})
        assert answer.status == 200, answer.body
        return answer.json

    def events(self, path: str, body: Any) -> Generator[Any, None, None]:
        """The events of a streamed answer, as they come."""
        connection = self._connection()
        try:
            connection.request("POST", path, json.dumps(body).encode(), self.headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            assert response.getheader("Content-Type", "").startswith("text/event-stream")
            for line in response:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def open_stream(self, body: Any) -> socket.socket:
        """A raw connection on which a streamed completion was asked for and has begun."""
        connection = socket.create_connection((self.host, self.port), timeout=self.timeout)
        data = json.dumps({**body, "stream": True}).encode()
        head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        return connection
