"""Reads a request body from a connection's bytes: by its length, or chunked.
Runs on the event loop and does no I/O; a reader never takes a byte of the next request."""

from __future__ import annotations

import re

from llamad.http.errors import HttpError

# The longest chunk line (with its extensions) and the longest trailer line, in bytes.
LINE_MAX = 4096
# Chunk lines, extensions and trailers together may have this many bytes, plus one for every four bytes of the body.
# Without this limit, chunks of one byte would cost many times what the body limit allows.
FRAMING_FREE = 64 * 1024
FRAMING_SHARE = 4
COPIED_MAX = 1 << 20
# Lines that are read before the event loop turns to other connections; about 4 ms.
LINES_PER_TURN = 1024

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n").fullmatch
_CRLF = b"\r\n"


class LengthBody:
    """A body of a known length. If `buffer`, of that length, is set before the first byte, the body is read into it."""

    needs_turn = False  # feed() always takes all bytes

    __slots__ = ("_data", "_discard", "_left", "_length", "_parts", "buffer", "done")

    def __init__(self, length: int) -> None:
        self.buffer: memoryview | None = None
        self._left = self._length = length
        self._discard = False
        self._data = b""
        self._parts: bytearray | None = None
        self.done = length == 0

    @property
    def left(self) -> int:
        return self._left

    @property
    def n_bytes(self) -> int:
        """Return how many bytes of the body have arrived."""
        return self._length - self._left

    def discard(self) -> None:
        """Skip the rest: the response is already sent."""
        self._discard = True
        self._parts = None
        self.buffer = None

    def feed(self, data: bytes, pos: int) -> int:
        """Take the body's bytes from `pos`; return the new position."""
        stop = min(len(data), pos + self._left)
        if self.buffer is not None:
            start = len(self.buffer) - self._left
            self.buffer[start : start + stop - pos] = memoryview(data)[pos:stop]
            self._left -= stop - pos
            self.done = self._left == 0
            return stop
        first = self._parts is None
        self._left -= stop - pos
        self.done = self._left == 0
        if self._discard:
            return stop
        if first and self.done:
            self._data = data[pos:stop]
        elif self._parts is None:
            self._parts = bytearray(data[pos:stop])
        else:
            self._parts += memoryview(data)[pos:stop]
        return stop

    def take(self) -> bytes | memoryview:
        if self.buffer is not None:
            return self.buffer
        if self._parts is None:
            return self._data
        parts, self._parts = self._parts, None
        return _whole(parts)


class ChunkedBody:
    """A body in chunks, decoded strictly: every line ends in CRLF, sizes are plain hex, trailers are dropped."""

    __slots__ = (
        "_after_data",
        "_buffer",
        "_flag",
        "_framing",
        "_left",
        "_limit",
        "_line",
        "_n",
        "_parts",
        "_trailers",
        "done",
        "needs_turn",
    )

    def __init__(self, limit: int, buffer: memoryview | None = None, flag: str = "") -> None:
        self._limit = limit
        self._flag = flag  # the flag that sets the limit
        self._buffer = buffer  # has `limit` bytes, if the application provided one
        self._parts = bytearray()
        self._n = 0  # bytes of the body so far
        self._left = 0  # bytes of the current chunk still to come
        self._after_data = False  # the CRLF after a chunk's data is expected
        self._trailers = False
        self._line = b""  # a line that is not complete yet
        self._framing = 0
        self.done = False
        self.needs_turn = False  # feed() stopped before the end of its data, to let other connections go on

    @property
    def n_bytes(self) -> int:
        """Return how many bytes of the body have arrived."""
        return self._n

    def feed(self, data: bytes, pos: int) -> int:
        """Take bytes from `pos` up to the body's end, but only as many as one turn may take. Return the new position.
        Raises HttpError."""
        n = len(data)
        n_lines = 0
        self.needs_turn = False
        while pos < n and not self.done:
            if n_lines == LINES_PER_TURN:
                self.needs_turn = True
                break
            if self._left:
                stop = min(n, pos + self._left)
                if self._buffer is None:
                    self._parts += memoryview(data)[pos:stop]
                else:
                    self._buffer[self._n : self._n + stop - pos] = memoryview(data)[pos:stop]
                self._n += stop - pos
                self._left -= stop - pos
                self._after_data = self._left == 0
                pos = stop
            elif self._after_data:
                pos = self._end_chunk(data, pos)
            else:
                pos = self._take_line(data, pos)
                n_lines += 1
        return pos

    def _end_chunk(self, data: bytes, pos: int) -> int:
        stop = pos + 2 - len(self._line)
        line = self._line + data[pos:stop]
        if not _CRLF.startswith(line):
            raise HttpError(400, "Malformed chunked body: a chunk is longer than its size says.")
        if line == _CRLF:
            self._line, self._after_data = b"", False
            self._count(2)
        else:
            self._line = line
        return min(stop, len(data))

    def _take_line(self, data: bytes, pos: int) -> int:
        newline = data.find(b"\n", pos, pos + LINE_MAX)
        stop = newline + 1 if newline >= 0 else min(len(data), pos + LINE_MAX)
        line = self._line + data[pos:stop]
        if len(line) > LINE_MAX or (newline < 0 and len(line) == LINE_MAX):
            raise HttpError(400, f"Malformed chunked body: a line is longer than {LINE_MAX} bytes.")
        if newline < 0:
            self._line = line
            return stop
        self._line = b""
        self._count(len(line))
        if self._trailers:
            self._end_trailer(line)
        else:
            self._begin_chunk(line)
        return stop

    def _begin_chunk(self, line: bytes) -> None:
        match = _CHUNK_LINE(line)
        if match is None:
            raise HttpError(400, "Malformed chunked body: a chunk does not start with its size in hex.")
        size = int(match[1], 16)
        if size == 0:
            self._trailers = True
        elif self._n + size > self._limit:
            raise too_large(self._limit, self._flag)
        self._left = size

    def _end_trailer(self, line: bytes) -> None:
        if line == _CRLF:
            self.done = True
        elif not line.endswith(_CRLF):
            raise HttpError(400, "Malformed chunked body: a trailer line does not end in CRLF.")

    def _count(self, n_bytes: int) -> None:
        self._framing += n_bytes
        if self._framing > FRAMING_FREE + self._n // FRAMING_SHARE:
            raise HttpError(400, "The chunks of the body are too small for its size; send larger ones.")

    def take(self) -> bytes | memoryview:
        if self._buffer is not None:
            return self._buffer[: self._n]
        parts, self._parts = self._parts, bytearray()
        return _whole(parts)


def _whole(parts: bytearray) -> bytes | memoryview:
    """Return a small body as bytes, and a large one as a view, because copying it would take milliseconds."""
    return bytes(parts) if len(parts) <= COPIED_MAX else memoryview(parts).toreadonly()


def too_large(limit: int, flag: str = "") -> HttpError:
    """Return the 413 error; `flag` is the flag that sets the limit."""
    advice = f"; send a smaller one, or start llamad with a larger {flag}" if flag else ""
    return HttpError(413, f"The request body is larger than {limit} bytes{advice}.")
