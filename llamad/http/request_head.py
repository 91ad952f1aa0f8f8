"""Parses a request head from a connection's bytes: feeds httptools exactly one head at a time.
Runs on the event loop, does no I/O; a body's bytes never reach the parser (body.py reads them)."""

from __future__ import annotations

import httptools

from llamad.http.errors import HttpError

# httptools cannot stop between two pipelined requests, and after an Upgrade header it ignores the body's framing.
# Neither matters if it only ever sees one head. A head ends at the first empty line (the parser rejects bare line
# feeds), so its end is found before it is parsed.
_END = b"\r\n\r\n"

HEADER_LINES_MAX = 256

_METHODS = {b"GET": "GET", b"POST": "POST"}
_BLANK = (b" ", b"\t")

# The usual spellings of common names, so that lower-casing them costs one lookup.
_COMMON = (
    *("Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection"),
    *("Content-Length", "Content-Type", "Cookie", "Expect", "Host", "Origin", "Pragma", "Referer"),
    *("Transfer-Encoding", "Upgrade", "User-Agent", "X-Api-Key", "X-Forwarded-For", "X-Request-Id"),
)
_NAMES = {n.encode(): n.lower() for n in _COMMON} | {n.lower().encode(): n.lower() for n in _COMMON}


class HeadReader:
    """Feed it bytes until `complete`, read the fields, then call `reset()` for the next head."""

    __slots__ = (
        "_error",
        "_limit",
        "_n_repeated",
        "_parser",
        "_tail",
        "complete",
        "headers",
        "keep_alive",
        "n_bytes",
        "reusable",
        "target",
    )

    def __init__(self, limit: int) -> None:
        # connection lifetime
        self._limit = limit
        self._parser: httptools.HttpRequestParser | None = None
        # request lifetime
        self.reset(False)

    def reset(self, keep_parser: bool) -> None:
        """Forget the head. The parser can be reused only if no body followed, because it never sees bodies."""
        if not keep_parser:
            self._parser = None
        self.n_bytes = 0  # bytes of this head that the parser has seen
        self._n_repeated = 0
        self._tail = b""  # the last bytes of an incomplete head: its end may be split over two reads
        self._error: HttpError | None = None
        self.complete = False
        self.target = b""
        self.headers: dict[str, str] = {}
        self.keep_alive = False
        self.reusable = False

    @property
    def started(self) -> bool:
        return self.n_bytes > 0

    def feed(self, data: bytes, pos: int) -> int:
        """Take bytes from `pos` up to the head's end; return the new position. Raises HttpError."""
        n = len(data)
        if self.n_bytes:
            stop = self._find_stop(data, pos)
        else:
            if data[pos] <= 13:  # blank lines before a request are ignored
                pos = n - len(data[pos:].lstrip(b"\r\n"))
                if pos == n:
                    return n
            end = data.find(_END, pos)
            stop = end + 4 if end >= 0 else n
        too_long = stop - pos > self._limit - self.n_bytes
        if too_long:
            stop = pos + self._limit - self.n_bytes
        self.n_bytes += stop - pos
        self._parse(data if pos == 0 and stop == n else memoryview(data)[pos:stop])
        if not self.complete:
            if too_long:
                raise HttpError(
                    431,
                    f"The request line and headers are larger than {self._limit} bytes (--header-max-bytes).",
                )
            self._tail = (self._tail + data[max(pos, stop - 3) : stop])[-3:]
        return stop

    def _find_stop(self, data: bytes, pos: int) -> int:
        """Return where a head that began in an earlier read ends, or the end of the data."""
        tail = self._tail
        across = (tail + data[pos : pos + 3]).find(_END)
        if across >= 0:
            return pos - len(tail) + across + 4
        end = data.find(_END, pos)
        return end + 4 if end >= 0 else len(data)

    def _parse(self, piece: bytes | memoryview) -> None:
        parser = self._parser
        if parser is None:
            parser = self._parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            pass  # the head is complete; the offer to change the protocol is ignored
        except httptools.HttpParserError as error:
            raise self._error or HttpError(400, f"Malformed HTTP request: {error}.") from None

    def method(self) -> str:
        assert self._parser is not None
        name = self._parser.get_method()
        return _METHODS.get(name) or name.decode("ascii")

    def version(self) -> str:
        # Without a Connection header only HTTP/1.1 keeps the connection open; asking the parser is slow.
        if self.keep_alive and "connection" not in self.headers:
            return "1.1"
        assert self._parser is not None
        return self._parser.get_http_version()

    # Called by the parser.

    def on_url(self, piece: bytes) -> None:
        self.target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        key = _NAMES.get(name) or name.decode("latin-1").lower()
        text = value.decode("latin-1")
        if value[-1:] in _BLANK:
            text = text.rstrip(" \t")
        headers = self.headers
        if key in headers:
            text = f"{headers[key]}, {text}"
            self._n_repeated += 1
        headers[key] = text
        if len(headers) + self._n_repeated > HEADER_LINES_MAX:
            self._error = HttpError(431, f"The request has more than {HEADER_LINES_MAX} header lines.")
            raise ValueError  # stops the parser; _parse() raises the error itself

    def on_headers_complete(self) -> None:
        parser = self._parser
        assert parser is not None
        self.complete = True
        # These are read here, because the parser forgets both when the message ends.
        self.keep_alive = parser.should_keep_alive()
        self.reusable = self.keep_alive and not parser.should_upgrade()


def body_length(method: str, version: str, headers: dict[str, str]) -> int:
    """Return the length of the body, or -1 if it is chunked. Raises HttpError for ambiguous framing."""
    if version != "1.1" and version != "1.0":
        raise HttpError(505, "Only HTTP/1.1 and HTTP/1.0 are supported.")
    if method == "CONNECT":
        raise HttpError(501, "CONNECT is not supported: this server is not a proxy.")
    host = headers.get("host")
    if host is None:
        if version == "1.1":
            raise HttpError(400, "An HTTP/1.1 request needs a Host header.")
    elif "," in host:
        raise HttpError(400, "The request has more than one Host header.")
    expect = headers.get("expect")
    if expect is not None and version == "1.1" and expect.lower() != "100-continue":
        raise HttpError(417, "The only supported expectation is 100-continue.")
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise HttpError(400, "Content-Length and Transfer-Encoding are mutually exclusive.")
        if version == "1.0":
            raise HttpError(400, "HTTP/1.0 has no Transfer-Encoding.")
        if coding.lower() != "chunked":
            raise HttpError(501, "The only supported Transfer-Encoding is chunked.")
        return -1
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()):
        raise HttpError(400, "Content-Length is not a number.")
    return int(length)
