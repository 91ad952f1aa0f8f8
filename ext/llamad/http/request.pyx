# Owns: the classes of a request, its head and a complete response, and the parser of a request target.
# Runs on the event loop; holds no socket and does no I/O. Compiled, because each request creates several of these.
import re
import secrets
import socket
from urllib.parse import parse_qsl, unquote_to_bytes

import httptools

from libc.string cimport memcpy
from cpython.unicode cimport PyUnicode_DecodeASCII

from llamad.http.errors import HttpError

from llamad.base.digits cimport put_hex

JSON = "application/json; charset=utf-8"

cdef dict _NOTHING = {}
# Visible ASCII without the space, so that an id taken from a client is one field of a log line.
_SANE_ID = re.compile(r"[\x21-\x7e]{1,128}").fullmatch
LENGTH_MAX = 2**62
# Limits of a query. Decoding one takes about 0.1 us per byte, on the event loop.
QUERY_MAX_BYTES = 8 * 1024
QUERY_PARAMETERS_MAX = 64


cdef class Head:
    """Everything that follows from the bytes of a head alone, so that equal heads are parsed once (head_cache.pyx).
    Requests share it, so it must not be changed."""

    def __init__(self, str method, str path, bytes raw_query, dict headers, length, malformed, refused,
                 bint http10, bint keep_alive, bytes cors_lines, str shown):
        self.method = method
        self.path = path
        self.raw_query = raw_query
        self.headers = headers
        self.length = min(length, LENGTH_MAX)  # of the body; -1: chunked
        self.malformed = malformed  # status and reason, if the connection must close
        self.refused = refused  # status and reason, if Origin or Host of a web page is not allowed
        self.http10 = http10
        self.keep_alive = keep_alive
        self.expects = "expect" in headers
        offered = headers.get("x-request-id")
        self.offered_id = offered if offered is not None and _SANE_ID(offered) else None
        self.cors_lines = cors_lines  # the CORS lines of the response
        self.shown = shown  # method and path as the access log shows them

    cdef dict parsed_query(self):
        """Return the parsed query; parse it at the first call. Raises HttpError."""
        if self._query is None:
            self._query = parse_query(self.raw_query)
        return self._query


cdef class Request:
    """One parsed HTTP request. `body` is empty until the handler runs, then complete."""

    def __init__(self, method: str, path: str, query: dict, headers: dict, request_id: str, peer: str,
                 t_start: float):
        self.method = method
        self.path = path
        self._query = query
        self.headers = headers  # lower-case names; repeated ones joined by ", "
        self.body = b""
        self.request_id = request_id
        self.peer = peer
        self.t_start = t_start  # time.monotonic(), the clock of loop.time() but finer than uvloop's milliseconds
        self.params = _NOTHING  # the {name} segments of the route, set by Router.resolve
        self.key_name = ""

    @property
    def query(self) -> dict:
        """The parameters of the query. It is parsed only here, after route and key, because most endpoints need none.
        Raises HttpError if it has too many parameters or is too long."""
        if self._query is None:
            self._query = self.head.parsed_query()
        return self._query


cdef class Response:
    """A complete response. An empty content_type sends no Content-Type; `reason` is an error's message, for the log."""

    def __init__(self, int status=200, body=b"", str content_type=JSON, tuple headers=(), str reason=""):
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers
        self.reason = reason


cdef class RequestIds:
    """Makes request ids of a random prefix for this process and a counter, which is cheaper than random ids."""

    def __init__(self):
        self._prefix = secrets.token_hex(6).encode() + b"-"

    cpdef str make(self):
        cdef char text[48]
        cdef char *end = text + sizeof(text)
        cdef char *at
        self._n += 1
        at = put_hex(end, self._n, 6) - 13
        memcpy(at, <char *>self._prefix, 13)
        return PyUnicode_DecodeASCII(at, end - at, NULL)

    cdef str take_or_make_id(self, str offered):
        return offered if offered is not None else self.make()

    def take_or_make(self, offered: str | None) -> str:
        """Return the id that a client offers if it is sane, or a new one."""
        return self.take_or_make_id(offered if offered is not None and _SANE_ID(offered) else None)


def parse_target(target: bytes) -> tuple[str, bytes]:
    """Return the decoded path and the raw query of a target in origin form ("/a?b"), absolute form or "*"."""
    if target[:1] == b"/":
        if b"#" in target:
            target = target[: target.index(b"#")]
        raw_path, _, raw_query = target.partition(b"?")
    elif target == b"*":
        return "*", b""
    else:
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            raise HttpError(400, "The request target is not a valid path or URL.") from None
        raw_path, raw_query = url.path or b"/", url.query or b""
    if b"%" in raw_path:
        raw_path = unquote_to_bytes(raw_path)
    path = raw_path.decode("utf-8", "replace")
    return path, raw_query


def parse_query(raw: bytes) -> dict[str, str]:
    """Return the decoded names and values. A name without a value gives "", and the last of repeated names counts.
    Raises HttpError if decoding would take long."""
    if not raw:
        return {}
    if len(raw) > QUERY_MAX_BYTES:
        raise HttpError(414, f"The query is longer than {QUERY_MAX_BYTES} bytes.")
    if raw.count(b"&") >= QUERY_PARAMETERS_MAX:
        raise HttpError(400, f"The query has more than {QUERY_PARAMETERS_MAX} parameters.")
    text = raw.decode("utf-8", "replace")
    return dict(parse_qsl(text, keep_blank_values=True, encoding="utf-8", errors="replace"))


def address_of(peer: object) -> str:
    """Return what identifies a client: its IPv4 address, the network of its IPv6 address, or "unix"."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        host = peer[0]
        if ":" not in host or "." in host:  # IPv4, or mapped into IPv6
            return host.rpartition(":")[2]
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0])[:8].hex()
    return "unix"


def peer_name(address: object) -> str:
    """Return the other end of a socket as one word: host:port, or "unix"."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        host = host.removeprefix("::ffff:") if "." in host else host  # IPv4, mapped into IPv6
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "unix"
