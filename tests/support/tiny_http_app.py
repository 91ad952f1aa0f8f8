"""A small application over the HTTP layer: each path does one thing that a test needs."""

from __future__ import annotations

import weakref
from typing import Any

from llamad.http.connection import Connection
from llamad.http.exchange import Exchange
from llamad.http.request import Request, Response
from llamad.http.router import Route, Router


class Memory(bytearray):
    """Can be watched going away."""


class TinyApp:
    """Each path does one thing that a test needs; `events` is what the HTTP layer called, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.held: list[Exchange] = []
        self.requests: list[Request] = []
        self.memories: list[weakref.ref[Memory]] = []  # of bodies of /into
        self.produced = 0
        self.flooding: Connection | None = None  # the connection of the last /flood
        self.router = Router()
        for path in (
            "/hello",
            "/big",
            "/empty",
            "/stream",
            "/hold",
            "/flood",
            "/boom",
            "/late-boom",
            "/inject",
        ):
            self._add("GET", path)
        for path in (
            "/inject-stream",
            "/inject-type",
            "/owned",
            "/bad-status",
            "/twice",
            "/private",
            "/head-boom",
        ):
            self._add("GET", path)
        for path in ("/into", "/echo", "/small", "/hold", "/private", "/max-boom", "/items/{name}"):
            self._add("POST", path)
        self._add("GET", "/items/{name}")

    def _add(self, method: str, path: str) -> None:
        name = path.split("/")[1].replace("-", "_")
        self.router.add(Route(method, path, getattr(self, f"do_{name}"), public=path != "/private"))

    # The HTTP layer's side.

    def on_head(self, request: Request) -> Response | None:
        if request.path == "/head-boom":
            raise RuntimeError("on_head fails")
        if request.headers.get("x-key"):
            request.key_name = request.headers["x-key"]
        refusal = self.router.resolve(request, self.error)
        if refusal is None and request.route is not None and not request.route.public:
            return self.error(401, "Invalid API Key")
        return refusal

    def body_max(self, request: Request) -> int:
        if request.path == "/max-boom":
            raise RuntimeError("body_max fails")
        if request.path == "/small":
            return 10
        return int(request.query.get("limit", "0"))

    def body_buffer(self, request: Request, length: int) -> memoryview | Response | None:
        """Of /into: memory of its own, or what the query asks for."""
        if request.path != "/into":
            return None
        how = request.query.get("how", "")
        if how == "boom":
            raise RuntimeError("body_buffer fails")
        if how == "full":
            return self.error(503, "No room")
        if how == "odd":
            return memoryview(bytearray(length + 1))
        memory = Memory(length)
        self.memories.append(weakref.ref(memory))
        return memoryview(memory)

    def on_request(self, exchange: Exchange) -> None:
        self.requests.append(exchange.request)
        self.events.append(("request", exchange.request.path))
        exchange.on_abort = lambda: self.events.append(("abort", exchange.request.path))
        assert exchange.request.route is not None
        exchange.request.route.handler(exchange)

    def on_done(self, exchange: Exchange, seconds: float) -> None:
        assert seconds >= 0
        self.events.append(("done", exchange.request.path, exchange.status))
        if exchange.request.headers.get("x-done-boom"):
            raise RuntimeError("on_done fails")

    def error(self, status: int, message: str, request: Request | None = None) -> Response:
        return Response(status, f'{{"error":{{"code":{status},"message":"{message}"}}}}'.encode())

    # The handlers.

    def do_hello(self, exchange: Exchange) -> None:
        name = exchange.request.query.get("name", "")
        exchange.send(Response(200, f"hello {name}".encode(), "text/plain"))

    def do_echo(self, exchange: Exchange) -> None:
        exchange.send(Response(200, exchange.request.body, "application/octet-stream"))

    def do_into(self, exchange: Exchange) -> None:
        body = exchange.request.body
        assert isinstance(body, memoryview)
        assert isinstance(body.obj, Memory)
        self.requests.clear()  # they hold the memory
        exchange.send(Response(200, body, "application/octet-stream"))

    do_small = do_max_boom = do_head_boom = do_private = do_echo

    def do_items(self, exchange: Exchange) -> None:
        exchange.send(Response(200, exchange.request.params["name"].encode(), "text/plain"))

    def do_big(self, exchange: Exchange) -> None:
        exchange.send(Response(200, b"x" * int(exchange.request.query["n"]), "text/plain"))

    def do_empty(self, exchange: Exchange) -> None:
        exchange.send(Response(int(exchange.request.query.get("status", "204")), b"never sent"))

    def do_stream(self, exchange: Exchange) -> None:
        exchange.begin(200, "text/event-stream", (("X-Extra", "1"),))
        for i in range(int(exchange.request.query.get("n", "3"))):
            exchange.write(b"data: %d\n\n" % i)
        exchange.write(b"")
        exchange.end()

    def do_hold(self, exchange: Exchange) -> None:
        self.held.append(exchange)

    def do_flood(self, exchange: Exchange) -> None:
        """Write until told to pause, and again when told to resume, up to `n` pieces."""
        left = int(exchange.request.query["n"])
        self.flooding = exchange._connection
        piece = b"y" * 1024

        def produce() -> None:
            nonlocal left
            while left and not exchange.closed and not exchange.paused:
                left -= 1
                self.produced += 1
                exchange.write(piece)
            if not left:
                exchange.end()

        def resume() -> None:
            self.events.append(("resume", "/flood"))
            produce()

        exchange.on_pause = lambda: self.events.append(("pause", "/flood"))
        exchange.on_resume = resume
        exchange.begin(200, "text/plain")
        produce()

    def do_boom(self, exchange: Exchange) -> None:
        raise RuntimeError("the handler fails")

    def do_late_boom(self, exchange: Exchange) -> None:
        exchange.begin(200, "text/plain")
        exchange.write(b"part")
        raise RuntimeError("the handler fails late")

    def do_inject(self, exchange: Exchange) -> None:
        exchange.send(Response(200, b"", headers=(("X-Echo", "a\r\nX-Forged: 1"),)))

    def do_inject_stream(self, exchange: Exchange) -> None:
        exchange.begin(200, "text/plain", (("X-Forged: 1\r\nX-Echo", "a"),))
        exchange.write(b"dropped")
        exchange.end()

    def do_inject_type(self, exchange: Exchange) -> None:
        exchange.send(Response(200, b"", "text/plain\r\nX-Forged: 1"))

    def do_owned(self, exchange: Exchange) -> None:
        exchange.send(Response(200, b"", headers=(("Content-Length", "99"),)))

    def do_bad_status(self, exchange: Exchange) -> None:
        exchange.send(Response(100, b""))

    def do_twice(self, exchange: Exchange) -> None:
        exchange.send(Response(200, b"first"))
        exchange.send(Response(500, b"second"))
        exchange.write(b"third")
        exchange.end()
        exchange.fail(Response(500))
