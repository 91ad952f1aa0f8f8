# Owns: one request and its response. The application writes to a client only through it.
# Runs on the event loop; it must not outlive its response, so a closed exchange ignores every write.
import asyncio
import logging

from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from llamad.http import sse
from llamad.http.response_head import LAST_CHUNK

from llamad.base.digits cimport put_hex
from llamad.base.memory_budget cimport Claim
from llamad.http.request cimport Request, Response
from llamad.http.response_head cimport has_body, length_line, response_head

log = logging.getLogger("llamad.http")

CLIENT_GONE = 499

cdef int _CLIENT_GONE = CLIENT_GONE
cdef bytes _STREAM_LINES = b"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
# A larger body is not copied behind its head but written separately.
cdef Py_ssize_t _JOIN_MAX = 64 * 1024
# A larger body is written in pieces of this size, each after the client has taken the one before. So no copy of it
# waits in the transport, and with TLS other clients need not wait until all of it is encrypted.
_PIECE = 1024 * 1024
cdef bytes _LAST_CHUNK = LAST_CHUNK


cdef bytes _chunk(bytes data, Py_ssize_t n):
    """Return the data as one chunk of a chunked body."""
    cdef char size[24]
    cdef char *end = size + sizeof(size)
    cdef char *at
    cdef Py_ssize_t n_size
    cdef bytes out
    cdef char *to
    memcpy(end - 2, b"\r\n", 2)
    at = put_hex(end - 2, <unsigned long long>n, 1)
    n_size = end - at
    out = PyBytes_FromStringAndSize(NULL, n_size + n + 2)
    to = PyBytes_AS_STRING(out)
    memcpy(to, at, <size_t>n_size)
    memcpy(to + n_size, PyBytes_AS_STRING(data), <size_t>n)
    memcpy(to + n_size + n, b"\r\n", 2)
    return out


cdef class Way:
    """The interface of a connection that an exchange uses. Connection implements it."""

    cdef put(self, bytes data):
        raise TypeError("a connection does this")

    cdef put_two(self, bytes first, second):
        raise TypeError("a connection does this")

    cdef put_piece(self, data):
        raise TypeError("a connection does this")

    cdef bint can_keep(self, Exchange exchange) except -1:
        raise TypeError("a connection does this")

    cdef Claim new_claim(self, Exchange exchange):
        raise TypeError("a connection does this")

    cdef finish(self, Exchange exchange):
        raise TypeError("a connection does this")

    cdef cut_off(self, Exchange exchange):
        raise TypeError("a connection does this")


cdef Exchange new_exchange(Way connection, Request request, bint http10, bint keep):
    cdef Exchange self = Exchange.__new__(Exchange)
    self.request = request
    self.http10 = http10
    self.keep = keep  # whether the connection stays open after this response
    self._connection = connection
    self._mute = request.method == "HEAD"  # the response has only a head
    self._length = -1
    return self


cdef class Exchange:
    """Call `send()`, or `begin()`, `write()`... and `end()`. If `closed` is set, nothing can be written any more.

    on_abort is called at most once, if the response can no longer be delivered before end() or send() was called; the
    application should drop the work then. on_pause and on_resume are called while a stream is open, possibly from
    inside write(); a stream that continues to write while paused grows in memory.
    """

    # For the application.

    @property
    def begun(self) -> bool:
        return self._begun

    @property
    def paused(self) -> bool:
        """Whether the client reads too slowly at the moment."""
        return not self.closed and self._connection.flow.write_paused

    @property
    def claim(self) -> Claim:
        """The request's claim on the memory budget. It is released when the response ends."""
        return self.take_claim()

    cdef Claim take_claim(self):
        if self._claim is None:
            self._claim = self._connection.new_claim(self)
            if self.closed:
                self._claim.release()
        return self._claim

    def drop_body(self) -> None:
        """Drop the body after it has been read, so that its memory is free for others."""
        self.request.body = b""
        if self.n_body != 0:
            self._claim.add(-self.n_body)
            self.n_body = 0

    cpdef count_decoded(self, long long n_bytes):
        """Set the number of bytes that the decoded body takes. Raises BudgetFull."""
        self.take_claim().add(n_bytes - self.n_decoded)
        self.n_decoded = n_bytes

    cpdef send(self, response):
        """Send a complete response."""
        cdef Response whole = response
        cdef bytes length, head
        body = whole.body  # bytes, or a memoryview if it is too large to copy
        if self.closed:
            return
        if self._begun:
            raise RuntimeError("send() in a stream that has begun")
        length = length_line(len(body)) if has_body(whole.status) else b""
        try:
            head = self._head(whole.status, whole.content_type, whole.headers, length)
        except ValueError as error:
            self._refuse_head(error)
            return
        self._begun = True
        self.failure = whole.reason
        if self._mute or not length:
            self._connection.put(head)
        else:
            if len(body) > _PIECE:
                self._connection.put(head)
                self._rest = memoryview(body)
                self._write_rest()
                return
            self.sent_bytes = len(body)
            if len(body) <= _JOIN_MAX:
                self._connection.put(head + bytes(body))
            else:
                self._connection.put_two(head, body)
        self._close()

    def _write_rest(self):
        """Write the next piece of a large body: one for each turn of the loop, so that others get their turns too."""
        rest = self._rest
        if self.closed or rest is None or self.paused:
            return
        piece, self._rest = rest[:_PIECE], rest[_PIECE:]
        self.sent_bytes += len(piece)
        self._connection.put_piece(piece)
        if self.closed:
            return
        if not self._rest:
            self._rest = None
            self._close()
        elif not self.paused:
            asyncio.get_running_loop().call_soon(self._write_rest)

    def begin(self, int status, str content_type, headers=(), bytes data=b"", long long length=-1):
        """Start a streamed response: in chunks, or with HTTP/1.0 until the connection closes. `data` is sent together
        with the head, in one write. With a `length`, the response has that length, and the pieces must add up to it."""
        cdef bytes extra, head
        if self.closed:
            return
        if self._begun:
            raise RuntimeError("begin() in a response that has begun")
        if self.http10 and length < 0:
            self.keep = False
        self._mute = self._mute or not has_body(status)
        self._chunked = not self.http10 and has_body(status) and length < 0
        self._length = length
        if length >= 0 and has_body(status):
            extra = length_line(<Py_ssize_t>length)
        else:
            extra = b"Transfer-Encoding: chunked\r\n" if self._chunked else b""
        if content_type.startswith(sse.CONTENT_TYPE):
            extra += _STREAM_LINES
        try:
            head = self._head(status, content_type, headers, extra)
        except ValueError as error:
            self._refuse_head(error)
            return
        self._begun = True
        self._connection.put(head + self._framed(data))

    cpdef write(self, bytes data):
        """Write one piece of the stream."""
        cdef bytes framed
        if self.closed:
            return
        if not self._begun:
            raise RuntimeError("write() before begin()")
        framed = self._framed(data)
        if framed:
            self._connection.put(framed)

    cpdef end(self, bytes data=b""):
        """End the stream, with this as its last piece."""
        cdef bytes last
        if self.closed:
            return
        if not self._begun:
            raise RuntimeError("end() before begin()")
        last = self._framed(data)
        if self.sent_bytes < self._length and not self._mute:
            raise RuntimeError("end() before all of the response's length was written")
        if self._chunked and not self._mute:
            last += _LAST_CHUNK
        if last:
            self._connection.put(last)
        self._close()

    cpdef fail(self, response):
        """Respond with an error. A stream that has begun is cut off instead, so that the client notices."""
        if self.closed:
            return
        if not self._begun:
            self.send(response)
            return
        self.failure = (<Response>response).reason
        self.closed = True
        self._connection.cut_off(self)

    cdef bytes _framed(self, bytes data):
        """Return a piece as it is sent. An empty one gives no bytes, because an empty chunk would end the stream."""
        cdef Py_ssize_t n = len(data)
        if n == 0 or self._mute:
            return b""
        if 0 <= self._length < self.sent_bytes + n:
            raise RuntimeError("more than the response's length was written")
        self.sent_bytes += n
        return _chunk(data, n) if self._chunked else data

    # For the connection.

    cdef abandon(self):
        """Close the exchange and call on_abort, because the response cannot be delivered. The caller finishes it."""
        self.closed = True
        self._rest = None
        if self.status == 0:
            self.status = _CLIENT_GONE
        self.call_on_abort()

    def call_on_abort(self):
        callback, self.on_abort = self.on_abort, None
        if callback is not None:
            self._guard(callback)

    cdef pause(self):
        if self._begun and self._rest is None and self.on_pause is not None:
            self._guard(self.on_pause)

    cdef resume(self):
        if self._rest is not None:
            self._write_rest()
        elif self._begun and self.on_resume is not None:
            self._guard(self.on_resume)

    def _guard(self, callback):
        try:
            callback()
        except Exception:
            log.exception("request %s: a callback failed", self.request.request_id)

    cdef bytes _head(self, int status, str content_type, headers, bytes framing):
        cdef Request request = self.request
        cdef bytes origin
        cdef bint keep = self._connection.can_keep(self)
        if request.head is not None:
            origin = request.head.cors_lines
        else:
            origin = self._connection.server.cors.verdict(request.method, request.headers).lines.encode("latin-1")
        cdef bytes head = response_head(status, content_type, origin + framing, headers, request.request_id, self.http10,
                                        keep)
        self.keep = keep
        self.status = status
        return head

    cdef _refuse_head(self, error):
        """Send a 500 and drop the work, because the application's head would break the connection."""
        log.error("request %s: the response cannot be sent: %s", self.request.request_id, error)
        self._mute = self.request.method == "HEAD"
        self._chunked = False
        self.call_on_abort()
        message = "The server made an invalid response; see its log."
        self.send(self._connection.server.error(500, message, self.request))

    cdef _close(self):
        self.closed = True
        self._connection.finish(self)
