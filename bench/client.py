"""The bench's own HTTP client, for everything that is not load: readiness, tokenizing, single completions.

Runs in the bench's process, one request at a time. Load comes from loadgen/.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

from bench.errors import BenchError

Address = tuple[str, int]
HEALTH_SECONDS = 10.0

clock = time.perf_counter_ns


def health(address: Address) -> bool:
    """Return whether /health returns 200, on a new connection."""
    return serves(http.client.HTTPConnection(*address, timeout=HEALTH_SECONDS))


def serves(connection: http.client.HTTPConnection) -> bool:
    """Return whether /health returns 200 on this connection, and close it."""
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class Client:
    """A keep-alive connection that sends and receives JSON."""

    def __init__(self, address: Address, timeout_s: float = 600.0) -> None:
        self._connection = http.client.HTTPConnection(*address, timeout=timeout_s)

    def ask(self, path: str, body: Any) -> Any:
        answer = self._send(path, body)
        return json.loads(answer.read())

    def first_token(self, body: Any) -> int:
        """Return the time at which the first token of a streamed /completion was read. Closes the connection."""
        try:
            for line in self._send("/completion", body):
                if line.startswith(b"data: ") and json.loads(line[6:]).get("content"):
                    return clock()
        finally:
            self.close()
        raise BenchError("a stream ended without a token")

    def close(self) -> None:
        self._connection.close()

    def _send(self, path: str, body: Any) -> http.client.HTTPResponse:
        data = json.dumps(body, separators=(",", ":")).encode()
        for attempt in range(2):
            try:
                self._connection.request("POST", path, data, {"Content-Type": "application/json"})
                answer = self._connection.getresponse()
                break
            except (ConnectionError, http.client.RemoteDisconnected):
                self._connection.close()  # closed by the server while it was idle
                if attempt:
                    raise
        if answer.status != 200:
            text = answer.read().decode(errors="replace")[:400]
            raise BenchError(f"{path} returned {answer.status}: {text}")
        return answer
