"""Connections that the express lane serves: over the real program, and the lane alone over a socket pair."""

from __future__ import annotations

import re
import select
import socket
from typing import Any

from llamad.express.lane import Lane

TIMEOUT = 20.0
VARYING = re.compile(rb"(Date|X-Request-Id): [^\r]*")


def masked(head: bytes) -> bytes:
    """An answer's head without what differs from answer to answer."""
    return VARYING.sub(rb"\1: ", head)


class Kept:
    """One keep-alive connection; requests are its raw bytes."""

    def __init__(self, where: socket.socket | tuple[str, int]) -> None:
        self.socket = where if isinstance(where, socket.socket) else socket.create_connection(where)
        self.socket.settimeout(TIMEOUT)
        self._rest = b""

    @staticmethod
    def request(path: str, body: bytes | None = None, headers: str = "") -> bytes:
        method, length = ("GET", "") if body is None else ("POST", f"Content-Length: {len(body)}\r\n")
        return f"{method} {path} HTTP/1.1\r\nHost: test\r\n{headers}{length}\r\n".encode() + (body or b"")

    def ask(self, path: str, body: bytes | None = None, headers: str = "") -> tuple[bytes, bytes]:
        self.socket.sendall(self.request(path, body, headers))
        return self.answer()

    def answer(self) -> tuple[bytes, bytes]:
        """Head and body of the next answer."""
        while b"\r\n\r\n" not in self._rest:
            self._read()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        found = re.search(rb"Content-Length: (\d+)", head)
        assert found, head
        n = int(found[1])
        while len(self._rest) < n:
            self._read()
        body, self._rest = self._rest[:n], self._rest[n:]
        return head, body

    def _read(self) -> None:
        data = self.socket.recv(1 << 16)
        assert data, "the server closed the connection"
        self._rest += data

    def has_bytes(self, seconds: float = 0.01) -> bool:
        return bool(select.select([self.socket], [], [], seconds)[0])

    def is_closed(self) -> bool:
        """Waits for the end."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()


class Alone:
    """A lane without a server: each lent connection is one end of a socket pair."""

    FRONT = b"POST / HTTP/1.1\r\nContent-Length: "
    BACK = b"\r\nHost: test\r\n\r\n"
    STATUS = b"HTTP/1.1 200 OK\r\nDate: "
    HEADERS = b"\r\nContent-Length: "

    def __init__(self, lane: Lane) -> None:
        self.lane = lane

    def lend(self, kind: int, tag: int = 0, route: int = 0, body: bool = True, send_buffer: int = 0) -> Kept:
        ours, theirs = socket.socketpair()
        if send_buffer:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        theirs.setblocking(False)
        front, back = (self.FRONT, self.BACK) if body else (b"GET / HTTP/1.1\r\n\r\n", None)
        names = (b"unix", b'"POST /"', b"-")
        assert self.lane.lend(
            theirs.detach(), tag, kind, route, front, back, self.STATUS, self.HEADERS, *names
        )
        return Kept(ours)

    def request(self, body: bytes) -> bytes:
        return b"%b%d%b%b" % (self.FRONT, len(body), self.BACK, body)

    def wait_back(self) -> list[tuple[Any, ...]]:
        """What comes back next."""
        ready, _, _ = select.select([self.lane.fd], [], [], TIMEOUT)
        assert ready, "nothing came back"
        return self.lane.take_back()

    def outcome(self, kept: Kept, body: bytes) -> bytes | None:
        """The body of the answer, or None where the connection came back with all that was sent."""
        request = self.request(body)
        kept.socket.sendall(request)
        ready, _, _ = select.select([self.lane.fd, kept.socket], [], [], TIMEOUT)
        if kept.socket in ready:
            return kept.answer()[1]
        [(fd, _, data, unsent, _)] = self.lane.take_back()
        assert data == request
        assert unsent == b""
        socket.close(fd)
        return None
