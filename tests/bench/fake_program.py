#!/usr/bin/env python3
"""A program that answers like a server with a model, without one: started by the tests in place of both programs.

Takes any flags and heeds --port; a model named broken.gguf ends it. Each connection is closed after MAX_REQUESTS,
as llama-server does after a hundred.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_REQUESTS = 5
ROLE_SECONDS = 0.05  # between a chat's role and its first token
WORDS = ["one ", "two ", "é ", "four "]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    n_requests = 0

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _head(self, *headers: tuple[str, str], status: int = 200) -> None:
        self.n_requests += 1
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.n_requests == MAX_REQUESTS:
            self.send_header("Connection", "close")
        else:
            self.send_header("Keep-Alive", "timeout=5, max=100")
        self.end_headers()

    def _json(self, value: Any, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self._head(("Content-Type", "application/json"), ("Content-Length", str(len(data))), status=status)
        self.wfile.write(data)

    def _event(self, value: Any) -> None:
        """Written byte by byte: whoever reads must put it together."""
        data = f"data: {json.dumps(value)}\n\n".encode()
        chunk = f"{len(data):x}\r\n".encode() + data + b"\r\n"
        for i in range(len(chunk)):
            self.wfile.write(chunk[i : i + 1])

    def do_GET(self) -> None:
        self._json({"status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            pieces = re.findall(r"\s*\S+", body["content"])
            tokens: list[Any] = list(range(body.get("add_special", False) + len(pieces)))
            if body.get("with_pieces"):
                tokens = [{"id": i, "piece": piece} for i, piece in enumerate(pieces)]
            self._json({"tokens": tokens})
        elif self.path == "/detokenize":
            self._json({"content": " ".join(map(str, body["tokens"]))})
        elif body.get("prompt") == "refuse this":
            self._json({"error": {"code": 400, "message": "refused", "type": "invalid_request_error"}}, 400)
        elif not body.get("stream", True):
            n = body["n_predict"]
            self._json({"content": "".join(WORDS[i % len(WORDS)] for i in range(n))})
        else:
            self._head(("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked"))
            if body.get("prompt") == "fail in the middle":
                self._event({"error": {"code": 500, "message": "broken", "type": "server_error"}})
            elif "messages" in body:
                self._chat(body["max_tokens"], body["messages"][0]["content"])
            else:
                self._completion(body["n_predict"], body["prompt"])
            self.wfile.write(b"0\r\n\r\n")

    def _completion(self, n: int, prompt: str | list[int]) -> None:
        for i in range(n):
            self._event({"content": WORDS[i % len(WORDS)], "tokens": [i], "stop": False})
        n_prompt = 1 + len(prompt.split()) if isinstance(prompt, str) else len(prompt)
        last = {"content": "", "tokens": [], "stop": True, "tokens_predicted": n}
        self._event({**last, "tokens_evaluated": n_prompt})

    def _chat(self, n: int, content: str) -> None:
        """As OpenAI's: first a delta with the role and no text, a while before the first token."""
        self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        self.wfile.flush()
        time.sleep(ROLE_SECONDS)
        for i in range(n):
            self._event({"choices": [{"index": 0, "delta": {"content": WORDS[i % len(WORDS)]}}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
        n_prompt = 1 + len(content.split())
        self._event({"choices": [], "usage": {"prompt_tokens": n_prompt, "completion_tokens": n}})
        self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # all lanes connect at once

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may leave in the middle."""


def serve(port: int) -> Server:
    """Listening when this returns; the thread ends with shutdown()."""
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


if __name__ == "__main__":
    if "--help" in sys.argv:
        print("--cache-ram N\n--threads-http N")
        sys.exit()
    if "broken.gguf" in " ".join(sys.argv):
        sys.exit("the model is broken")
    serve(int(sys.argv[sys.argv.index("--port") + 1]))
    threading.Event().wait()
