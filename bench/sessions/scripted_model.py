"""A server in place of a model: it answers the programs by the script, and records what they ask.

One thread for each connection; the list of requests is appended to under a lock.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.sessions import dialects
from bench.sessions.script import MAIN, Script, Step

CHARS_PER_TOKEN = 4
N_CTX = 131072


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request of a program, in the order in which they came."""

    path: str  # one of dialects.PATHS
    body: dict[str, Any]


class ScriptedModel:
    """Serves until stop() is called. `folder` is where the programs work."""

    def __init__(self, folder: str, steps: Sequence[Sequence[Step]] = MAIN) -> None:
        self.requests: list[Recorded] = []
        self.unknown: list[str] = []
        self._script = Script(folder, steps)
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def respond(self, path: str, data: bytes) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        path = path.partition("?")[0]
        if path.endswith("/models"):
            listed = {
                "object": "list",
                "data": [{"id": "scripted", "object": "model", "meta": {"n_ctx": N_CTX}}],
            }
            return 200, "application/json", json.dumps(listed).encode()
        n_prompt = len(data) // CHARS_PER_TOKEN
        if path.endswith("/count_tokens"):
            return 200, "application/json", json.dumps({"input_tokens": n_prompt}).encode()
        if path not in dialects.PATHS:
            with self._lock:
                self.unknown.append(path)
            return 404, "application/json", b'{"error": {"message": "not found"}}'
        body = json.loads(data)
        with self._lock:
            self.requests.append(Recorded(path, body))
            said = self._script.answer(dialects.read(path, body))
        return 200, *dialects.write(path, body, said, n_prompt)


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedModel
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def _answer(self, data: bytes) -> None:
        status, kind, body = self.model.respond(self.path, data)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
