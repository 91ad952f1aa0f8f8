"""Owns what the tests of the HTTP layer share: a server on a thread of its own, a small application, and a
client that reads answers off a plain socket. Every test runs under asyncio's loop and under uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop
from support.http_wires import limits as default_limits
from support.loops.watchdog import Watchdog, to_stderr
from support.tiny_http_app import TinyApp

from llamad.http.access_log import text_line
from llamad.http.connection import Connection
from llamad.http.cors import Cors
from llamad.http.exchange import Exchange
from llamad.http.limits import Limits
from llamad.http.proxies import Proxies
from llamad.http.server import HttpServer
from llamad.http.tls import make as make_tls

T = TypeVar("T")
# Only ever reached by a test that fails.
PATIENCE = 20.0
LATE_SECONDS = 0.25  # a loop that was later says what held it
CERTIFICATE = Path(__file__).parent / "tls_for_tests_only.pem"


def wait_until(condition: Callable[[], bool], what: str = "") -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what or condition}"
        time.sleep(0.005)


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True  # False if the connection closed within the body


class Client:
    """A socket and the bytes read from it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(PATIENCE)
        self.buffer = bytearray()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def get(self, path: str, *headers: str, method: str = "GET") -> Reply:
        lines = "".join(f"{h}\r\n" for h in headers)
        self.send(f"{method} {path} HTTP/1.1\r\nHost: test\r\n{lines}\r\n".encode())
        return self.read(method)

    def post(self, path: str, body: bytes, *headers: str) -> Reply:
        lines = "".join(f"{h}\r\n" for h in headers)
        head = f"POST {path} HTTP/1.1\r\nHost: test\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        self.send(head.encode() + body)
        return self.read("POST")

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def _line(self) -> bytes:
        while b"\r\n" not in self.buffer:
            assert self._more(), f"closed within a line: {self.buffer[:100]!r}"
        return self._take(self.buffer.index(b"\r\n") + 2)[:-2]

    def _take(self, n: int) -> bytes:
        data = bytes(self.buffer[:n])
        del self.buffer[:n]
        return data

    def _exactly(self, n: int) -> tuple[bytes, bool]:
        while len(self.buffer) < n:
            if not self._more():
                return self._take(n), False
        return self._take(n), True

    def read_head(self) -> Reply:
        version, status, _ = self._line().decode("latin-1").split(" ", 2)
        assert version == "HTTP/1.1"
        headers: dict[str, str] = {}
        while line := self._line().decode("latin-1"):
            name, _, value = line.partition(":")
            assert name.lower() not in headers, f"{name} comes twice"
            headers[name.lower()] = value.strip()
        return Reply(int(status), headers, b"")

    def read(self, method: str = "GET") -> Reply:
        reply = self.read_head()
        if method == "HEAD" or reply.status in (100, 204, 304):
            return reply
        if "content-length" in reply.headers:
            reply.body, reply.whole = self._exactly(int(reply.headers["content-length"]))
        elif reply.headers.get("transfer-encoding") == "chunked":
            self._read_chunks(reply)
        else:
            while self._more():
                pass
            reply.body = self._take(len(self.buffer))
        return reply

    def _read_chunks(self, reply: Reply) -> None:
        parts = []
        try:
            while size := int(self._line(), 16):
                data, whole = self._exactly(size)
                parts.append(data)
                assert whole
                assert self._line() == b""
            assert self._line() == b""
        except AssertionError:
            reply.whole = False
        reply.body = b"".join(parts)

    def at_end(self) -> bool:
        """Wait for the server to close; True if nothing else came before."""
        while self._more():
            pass
        return not self.buffer

    def reset(self) -> None:
        """Vanish: the server sees a reset, not an orderly end."""
        linger_off = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_off)
        self.sock.close()


class BytewiseConnection(Connection):
    """Sees every byte alone, as if each had come in a packet of its own."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        for i in range(len(data)):
            super().data_received(data[i : i + 1])


class BytewiseServer(HttpServer):
    def _make(self) -> Connection:
        return BytewiseConnection(self)


class Watch(logging.Filter):
    """Sees what the server logs about mistakes of its own, which the tests never expect."""

    def __init__(self) -> None:
        super().__init__()
        self.mistakes: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        if "inside the server" in record.getMessage():
            self.mistakes.append(record.getMessage())
        return True


@dataclass
class Harness:
    """A listening server. `failures` holds whatever reached the loop's exception handler: always empty."""

    server: HttpServer
    app: TinyApp
    loop: asyncio.AbstractEventLoop
    where: str
    lines: list[str] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.where.rpartition(":")[2])

    def connect(self, source: str = "") -> Client:
        """`source`: the address to come from, of 127.0.0.0/8."""
        if self.where.startswith("unix:"):
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(self.where.removeprefix("unix:"))
            return Client(sock)
        sock = socket.create_connection(
            ("127.0.0.1", self.port), PATIENCE, source_address=(source, 0) if source else None
        )
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.where.startswith("https:"):
            context = ssl.create_default_context(cafile=CERTIFICATE)
            sock = context.wrap_socket(sock, server_hostname="localhost")
        return Client(sock)

    def on_loop(self, function: Callable[[], T]) -> T:
        """Run a function on the server's thread."""
        result: Future[T] = Future()

        def call() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self.loop.call_soon_threadsafe(call)
        return result.result(PATIENCE)

    def held(self, n: int = 1) -> Exchange:
        """Wait until the n-th /hold request has reached the application."""
        wait_until(lambda: len(self.app.held) >= n, f"{n} held requests")
        return self.app.held[n - 1]

    def connection(self) -> Connection:
        """Wait for the only connection."""
        wait_until(lambda: len(self.server.connections) == 1, "one connection")
        return self.on_loop(lambda: next(iter(self.server.connections)))

    def wait_event(self, *event: Any) -> None:
        wait_until(lambda: event in self.app.events, f"{event} in {self.app.events}")

    def wait_quiet(self) -> None:
        """Wait until no exchange and no connection is left."""
        wait_until(lambda: self.server.n_active == 0 and self.server.n_connections == 0, "a quiet server")

    def close(self, grace: float = 5.0) -> None:
        asyncio.run_coroutine_threadsafe(self.server.close(grace), self.loop).result(PATIENCE)


async def _watchdog() -> Watchdog:
    return Watchdog(LATE_SECONDS, to_stderr, has_stacks=False)


class Serve:
    """Starts servers for a test and checks, when it ends, that each one is whole."""

    def __init__(self, loop_kind: str) -> None:
        self.loop_kind = loop_kind
        self._stack = contextlib.ExitStack()

    def __call__(
        self,
        cors: Cors | None = None,
        host: str = "127.0.0.1",
        tls: bool = False,
        bytewise: bool = False,
        proxies: Proxies | None = None,
        **limits: Any,
    ) -> Harness:
        return self._stack.enter_context(
            self._running(cors or Cors(hosts=("*",)), host, tls, bytewise, proxies, default_limits(**limits))
        )

    @contextlib.contextmanager
    def _running(
        self, cors: Cors, host: str, tls: bool, bytewise: bool, proxies: Proxies | None, limits: Limits
    ) -> Iterator[Harness]:
        loop = uvloop.new_event_loop() if self.loop_kind == "uvloop" else asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="server")
        thread.start()
        watch = Watch()
        logging.getLogger("llamad.http").addFilter(watch)
        try:
            app, lines, failures = TinyApp(), [], []  # type: tuple[TinyApp, list[str], list[dict[str, Any]]]
            loop.set_exception_handler(lambda _, context: failures.append(context))
            context = None
            if tls:
                context = make_tls(str(CERTIFICATE), str(CERTIFICATE)).context
            kind = BytewiseServer if bytewise else HttpServer
            server = kind(
                app, limits, cors, lambda *over: lines.append(text_line(*over)), context, proxies=proxies
            )
            where = asyncio.run_coroutine_threadsafe(server.listen((host,), 0), loop).result(PATIENCE)
            harness = Harness(server, app, loop, where, lines, failures)
            watchdog = asyncio.run_coroutine_threadsafe(_watchdog(), loop).result(PATIENCE)
            try:
                yield harness
            finally:
                loop.call_soon_threadsafe(watchdog.close)
            harness.close()
            assert server.n_active == 0
            assert server.n_connections == 0
            assert server.budget.n_bytes == 0
            assert failures == []
            assert watch.mistakes == []
            done = sum(e[0] == "done" for e in app.events)
            assert done == len(lines)
            assert sum(e[0] == "request" for e in app.events) <= done
        finally:
            logging.getLogger("llamad.http").removeFilter(watch)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(PATIENCE)
            loop.close()

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def serve(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """serve(...) starts a server; keyword arguments beside cors, host, tls, bytewise and proxies are limits."""
    factory = Serve(request.param)
    yield factory
    factory.stop()


@pytest.fixture
def until() -> Callable[[Callable[[], bool], str], None]:
    return wait_until
