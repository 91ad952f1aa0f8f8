"""The HTTP layer without sockets: connections over transports of our own, two at a time, byte by byte if need be."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import msgspec
from hypothesis import strategies as st

from llamad.flags.sources import Sources
from llamad.http.connection import Connection
from llamad.http.cors import Cors
from llamad.http.limits import Limits
from llamad.http.server import HttpServer
from llamad.http_settings import limits_of
from support.tiny_http_app import TinyApp


def limits(**changes: float) -> Limits:
    """Return the limits that the flags set by default, with some of them changed."""
    settings = Sources(["-m", "x.gguf"], {}).read().settings.daemon
    return msgspec.structs.replace(limits_of(settings), **changes)


LIMITS = limits(header_max_bytes=500, body_max_bytes=1000, bodies_max_bytes=4000)

FRAGMENTS = [
    b"GET /hello HTTP/1.1\r\n",
    b"GET /hello?name=x HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /echo HTTP/1.1\r\n",
    b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /into HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
    b"GET /stream HTTP/1.0\r\n",
    b"HEAD /hello HTTP/1.1\r\n",
    b"OPTIONS /echo HTTP/1.1\r\n",
    b"GET /boom HTTP/1.1\r\n",
    b"POST /private HTTP/1.1\r\n",
    b"CONNECT a:1 HTTP/1.1\r\n",
    b"Host: a\r\n",
    b"Origin: https://evil.example\r\n",
    b"Origin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n",
    b"X-Request-Id: mine\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 900\r\n",
    b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Expect: 100-continue\r\n",
    b"X: ",
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"ffff\r\n",
    b"hello",
    b"y" * 450,
    b"\x00",
    b"%",
    b" ",
]
pieces = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=20)), max_size=14)
# What two clients send, and the sizes of the packets that they take turns with.
clients = st.tuples(pieces, pieces, st.lists(st.integers(1, 40), max_size=12))

# An id that the server made, its clock, and what depends on whether the body came with its head.
_OWN = re.compile(
    rb"X-Request-Id: [0-9a-f]{12}-[0-9a-f]{6,}\r\n|Date: [^\r]*\r\n|HTTP/1.1 100 Continue\r\n\r\n"
)


class Wire(asyncio.Transport):
    """A transport whose client is the test: it takes everything, and may send while reading is paused."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.out = bytearray()
        self._waiting = b""
        self._is_paused = self._is_closing = False
        connection.connection_made(self)

    def feed(self, data: bytes) -> None:
        if self._is_closing:
            return
        if self._is_paused:
            self._waiting += data
        elif data:
            self.connection.data_received(data)

    def hang_up(self) -> None:
        if not self._is_closing:
            self.connection.eof_received()
            self.close()

    # For the connection.

    def write(self, data: Any) -> None:
        self.out += data

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        waiting, self._waiting = self._waiting, b""
        if waiting:
            asyncio.get_running_loop().call_soon(self.feed, waiting)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


class Wires(logging.Handler):
    """check() holds the invariant over one server that lives through all cases, as its caches do."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._mistakes: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._server = self._make()

    def __enter__(self) -> Wires:
        logging.getLogger("llamad.http").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("llamad.http").removeHandler(self)
        self._loop.close()

    def emit(self, record: logging.LogRecord) -> None:
        if "inside the server" in record.getMessage():
            self._mistakes.append(self.format(record))

    @staticmethod
    def _make() -> HttpServer:
        return HttpServer(TinyApp(), LIMITS, Cors(["auto"]), None)

    def check(self, one: list[bytes], two: list[bytes], sizes: list[int]) -> None:
        whole = [b"".join(one), b"".join(two)]
        alone = [self._talk(self._make(), [[data]])[0] for data in whole]
        packets = [_cut(data, sizes) for data in whole]
        assert self._talk(self._server, packets) == alone
        assert self._talk(self._server, [_cut(data, [1] * len(data)) for data in whole]) == alone

    def _talk(self, server: HttpServer, packets: list[list[bytes]]) -> list[bytes]:
        """What each client gets that sends its packets in turn with the others, and then leaves."""
        found = self._loop.run_until_complete(_talk(server, packets))
        assert self._mistakes == []
        assert (server.n_active, server.n_connections, server.budget.n_bytes) == (0, 0, 0)
        return found


async def _talk(server: HttpServer, packets: list[list[bytes]]) -> list[bytes]:
    wires = [Wire(server._make()) for _ in packets]
    for turn in range(max(map(len, packets))):
        for wire, own in zip(wires, packets, strict=True):
            if turn < len(own):
                wire.feed(own[turn])
        await asyncio.sleep(0)
    for _ in range(50):  # what was put off, such as pipelined requests
        await asyncio.sleep(0)
    for wire in wires:
        wire.hang_up()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [_OWN.sub(b"", bytes(wire.out)) for wire in wires]


def _cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in packets of these sizes, the last one taking the rest."""
    packets = []
    for size in sizes:
        packets.append(data[:size])
        data = data[size:]
    return [*packets, data]
