"""Owns the event loop's side of the express lane: which connections are lent to it, and how they come back.
Runs on the event loop; the lane's threads (llamad/express) have a lent connection to themselves."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from llamad.express.lane import ROUTES_MAX, Lane
from llamad.http import wire
from llamad.http.connection import Connection
from llamad.http.message import JSON

if TYPE_CHECKING:
    from llamad.http.message import Head, Request
    from llamad.http.router import Route
    from llamad.http.server import HttpServer

log = logging.getLogger("llamad.http")

# A connection that came back because of what it sent must show twice as many answers of one kind in a row before it
# is lent again: a client that alternates is served best by the event loop alone.
NEEDED_MAX = 1024
LENT_MAX = 1024
LOG_SECONDS = 0.02
# Digits that a length may have more than that of the head which was seen.
_LENGTH_SPARE = 8
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([1-9][0-9]*)(?=\r\n)", re.IGNORECASE)


class Express:
    """`kinds` says which routes the lane can answer, and as what."""

    def __init__(
        self,
        server: HttpServer,
        lane: Lane,
        kinds: dict[Route, int],
        access_log: Callable[[str], None] | None,
    ) -> None:
        self.lane = lane
        self.n_lent = 0  # connections away, until they are closed or a Connection again
        self._server = server
        self._kinds = kinds
        self.routes = list(kinds)
        assert len(self.routes) <= ROUTES_MAX
        self._access_log = access_log
        self._loop = asyncio.get_running_loop()
        self._adopting: set[asyncio.Task[None]] = set()
        self._log_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._loop.add_reader(lane.fd, self._on_back)

    def can_lend(self, route: Route, head: Head) -> bool:
        """Whether further requests with this head, which was answered with 200, can be answered by the lane."""
        return (
            self.lane.is_open
            and self.n_lent < LENT_MAX
            and route in self._kinds
            and head.raw is not None
            and len(head.raw) + _LENGTH_SPARE <= self._server.limits.header_max_bytes
            and head.method == route.method
            and not head.query
            and not head.http10
            and not head.expects
            and (head.length == 0) == (head.method == "GET")
        )

    def lend(self, connection: Connection, head: Head, request: Request, peer: str, needed: int) -> None:
        """Take the connection's descriptor away from its transport, which has nothing left to write or to read."""
        route = request.route
        assert head.raw is not None
        assert route is not None
        front, back = head.raw, None
        if head.length:
            found = list(_LENGTH.finditer(front))
            if len(found) != 1:
                return  # written in an unusual way
            front, back = front[: found[0].start(1)], front[found[0].end(1) :]
        # All of an answer's head but its date, length and id, in exchange.pyx's order.
        status = f"{wire.status_line(200)}{wire.content_type_text(JSON)}{wire.BEFORE_DATE}".encode("latin-1")
        headers = b"\r\n" + head.cors_lines + b"Content-Length: "
        key = request.key_name.encode("latin-1") or b"-"
        try:
            fd = os.dup(connection.fileno())
        except OSError:
            return  # no descriptors left
        connection.leave()
        self.n_lent += 1
        taken = self.lane.lend(
            fd,
            needed,
            self._kinds[route],
            self.routes.index(route),
            front,
            back,
            status,
            headers,
            peer.encode("latin-1", "replace"),
            head.shown.encode("latin-1"),
            key,
        )
        if not taken:
            self._adopt(fd, needed, b"", b"", self._loop.time())
        elif self._access_log is not None and self._log_timer is None:
            self._log_timer = self._loop.call_later(LOG_SECONDS, self._on_log_timer)

    def recall(self) -> None:
        """Answers may differ from now on: every connection comes back before its next request is served."""
        self.lane.recall()

    def close(self) -> None:
        """No further requests: what rests is closed, as an idle connection is; a request that has begun comes back."""
        if self._is_closed:
            return
        self._is_closed = True
        self.lane.stop()
        self._loop.remove_reader(self.lane.fd)
        if self._log_timer is not None:
            self._log_timer.cancel()
            self._log_timer = None
        self._on_back()

    async def adopted(self) -> None:
        """Until every connection that came back has its transport."""
        while self._adopting:
            await asyncio.wait(self._adopting)

    # What the lane has to tell.

    def _on_back(self) -> None:
        came_back = self.lane.take_back()
        self._write_log()
        for fd, needed, data, unsent, t_used in came_back:
            if fd < 0:
                self.n_lent -= 1
            elif self._server.draining and not data and not unsent:
                os.close(fd)
                self.n_lent -= 1
            else:
                self._adopt(fd, min(needed * 2, NEEDED_MAX) if data else needed, data, unsent, t_used)

    def _adopt(self, fd: int, needed: int, data: bytes, unsent: bytes, t_used: float) -> None:
        work = self._connect(fd, Connection(self._server, (needed, data, unsent, t_used)))
        task = self._loop.create_task(work)
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def _connect(self, fd: int, connection: Connection) -> None:
        sock = None
        try:
            sock = socket.socket(fileno=fd)
            sock.setblocking(False)
            await self._loop.connect_accepted_socket(lambda: connection, sock)
        except Exception:
            log.exception("a connection could not be taken back")
            if connection._transport is None:  # else it was counted in
                self.n_lent -= 1
            if sock is not None:
                sock.close()
            else:
                os.close(fd)

    def _on_log_timer(self) -> None:
        self._write_log()
        again = self.n_lent > 0
        self._log_timer = self._loop.call_later(LOG_SECONDS, self._on_log_timer) if again else None

    def _write_log(self) -> None:
        if self._access_log is None:
            return
        for line in self.lane.take_log():
            self._access_log(line)
