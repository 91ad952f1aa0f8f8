"""Owns one request and its answer: the only way in which the application writes to a client.
Runs on the event loop; it must not outlive its answer, so a closed exchange drops every write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from llamad.http import sse, wire
from llamad.http.message import Request, Response

if TYPE_CHECKING:
    from llamad.http.connection import Connection

log = logging.getLogger("llamad.http")

CLIENT_GONE = 499
_STREAM_TEXT = "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
# Above this a body is not copied behind its head but written after it.
_JOIN_MAX = 64 * 1024
# Above this it is written in pieces of this size, each when the client has taken the one before: no copy of it waits
# in the transport, and with TLS others need not wait until all of it is encrypted.
_PIECE = 1024 * 1024


class Exchange:
    """`send()`, or `begin()`, `write()`... and `end()`. `closed` says that nothing can be written any more.

    on_abort is called at most once, when the answer can no longer be delivered and end() or send() did not
    come yet; drop the work then. on_pause and on_resume are called while a stream is open, possibly from
    inside write(); a stream that goes on writing while paused grows in memory.
    """

    __slots__ = (
        "_begun",
        "_chunked",
        "_connection",
        "_mute",
        "_rest",
        "closed",
        "http10",
        "keep",
        "on_abort",
        "on_pause",
        "on_resume",
        "request",
        "sent_bytes",
        "status",
    )

    def __init__(self, connection: Connection, request: Request, http10: bool, keep: bool) -> None:
        self.request = request
        self.status = 0
        self.sent_bytes = 0  # of the body, without heads and chunk frames
        self.closed = False
        self.on_abort: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.http10 = http10
        self.keep = keep  # whether the connection stays open after this answer
        self._connection = connection
        self._begun = False
        self._chunked = False
        self._mute = request.method == "HEAD"  # the answer has a head only
        self._rest: memoryview | None = None  # of a large body: what is not yet written

    # For the application.

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def paused(self) -> bool:
        """Whether the client is too slow just now."""
        return not self.closed and self._connection.flow.write_paused

    def send(self, response: Response) -> None:
        """The whole answer at once."""
        if self.closed:
            return
        if self._begun:
            raise RuntimeError("send() in a stream that has begun")
        body = response.body
        length = f"Content-Length: {len(body)}\r\n" if wire.has_body(response.status) else ""
        try:
            head = self._head(response.status, response.content_type, response.headers, length)
        except ValueError as error:
            self._refuse_head(error)
            return
        self._begun = True
        if self._mute or not length:
            self._connection.write(head)
        else:
            if len(body) > _PIECE:
                self._connection.write(head)
                self._rest = memoryview(body)
                self._write_rest()
                return
            self.sent_bytes = len(body)
            if len(body) <= _JOIN_MAX:
                self._connection.write(head + body)
            else:
                self._connection.writelines((head, body))
        self._close()

    def _write_rest(self) -> None:
        """The next piece of a large body. One for each turn of the loop, so that others have their turns too."""
        rest = self._rest
        if self.closed or rest is None or self.paused:
            return
        piece, self._rest = rest[:_PIECE], rest[_PIECE:]
        self.sent_bytes += len(piece)
        self._connection.write(piece)
        if self.closed:
            return
        if not self._rest:
            self._rest = None
            self._close()
        elif not self.paused:
            asyncio.get_running_loop().call_soon(self._write_rest)

    def begin(self, status: int, content_type: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Start a streamed answer: in chunks, or for HTTP/1.0 until the connection closes."""
        if self.closed:
            return
        if self._begun:
            raise RuntimeError("begin() in an answer that has begun")
        if self.http10:
            self.keep = False
        self._mute = self._mute or not wire.has_body(status)
        self._chunked = not self.http10 and wire.has_body(status)
        extra = "Transfer-Encoding: chunked\r\n" if self._chunked else ""
        if content_type.startswith(sse.CONTENT_TYPE):
            extra += _STREAM_TEXT
        try:
            head = self._head(status, content_type, headers, extra)
        except ValueError as error:
            self._refuse_head(error)
            return
        self._begun = True
        self._connection.write(head)

    def write(self, data: bytes) -> None:
        """One piece of the stream."""
        if self.closed or not data:  # an empty chunk would end the stream
            return
        if not self._begun:
            raise RuntimeError("write() before begin()")
        if self._mute:
            return
        self.sent_bytes += len(data)
        self._connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self) -> None:
        """The stream is complete."""
        if self.closed:
            return
        if not self._begun:
            raise RuntimeError("end() before begin()")
        if self._chunked and not self._mute:
            self._connection.write(wire.LAST_CHUNK)
        self._close()

    def fail(self, response: Response) -> None:
        """Answer with an error; a stream that has begun is cut off instead, so that the client sees it."""
        if self.closed:
            return
        if not self._begun:
            self.send(response)
            return
        self.closed = True
        self._connection.cut_off(self)

    # For the connection.

    def abandon(self) -> None:
        """The answer cannot be delivered: say so once. The caller finishes the exchange."""
        self.closed = True
        self._rest = None
        if self.status == 0:
            self.status = CLIENT_GONE
        self.call_on_abort()

    def call_on_abort(self) -> None:
        callback, self.on_abort = self.on_abort, None
        if callback is not None:
            self._guard(callback)

    def pause(self) -> None:
        if self._begun and self._rest is None and self.on_pause is not None:
            self._guard(self.on_pause)

    def resume(self) -> None:
        if self._rest is not None:
            self._write_rest()
        elif self._begun and self.on_resume is not None:
            self._guard(self.on_resume)

    def _guard(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("request %s: a callback failed", self.request.request_id)

    def _head(
        self, status: int, content_type: str, headers: Iterable[tuple[str, str]], framing: str
    ) -> bytes:
        request = self.request
        first = wire.status_line(status)
        extra = wire.headers_text(headers) if headers else ""
        self.keep = keep = self._connection.can_keep(self)
        head = (
            f"{first}{wire.common_text()}{wire.content_type_text(content_type)}{framing}"
            f"X-Request-Id: {request.request_id}\r\n{self._connection.server.cors.head_text(request)}"
            f"{wire.connection_text(self.http10, keep)}{extra}\r\n"
        ).encode("latin-1")
        self.status = status
        return head

    def _refuse_head(self, error: ValueError) -> None:
        """The application's head would break the connection: a 500 goes out, and its work is dropped."""
        log.error("request %s: the answer cannot be sent: %s", self.request.request_id, error)
        self._mute = self.request.method == "HEAD"
        self._chunked = False
        self.call_on_abort()
        message = "The server made an invalid answer; see its log."
        self.send(self._connection.server.error(500, message, self.request))

    def _close(self) -> None:
        self.closed = True
        self._connection.finish(self)
