# Owns: the bytes of a response head: status line, Date, framing, and the check of the application's headers.
# Runs on the event loop; writes to no socket. Every response head is made here.
import re
from email.utils import formatdate
from http import HTTPStatus

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy
from libc.time cimport time, time_t

from llamad.base.digits cimport put_decimal

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
# These are written here or concern framing: an application that could set them could break the connection.
_OWNED = {"connection", "content-length", "content-type", "date", "keep-alive", "server", "trailer"}
_OWNED |= {"transfer-encoding", "upgrade", "x-request-id"}

# There are few pairs of status and content type. If an application makes up many, the cache starts over.
cdef dict _first_lines = {}
cdef Py_ssize_t _FIRST_LINES_MAX = 256
# The lines that are the same for every response within one second.
cdef time_t _common_second = 0
cdef bytes _common_lines = b""


cdef bytes _common():
    global _common_second, _common_lines
    cdef time_t now = time(NULL)
    if now != _common_second:
        _common_lines = f"Server: llamad\r\nDate: {formatdate(now, usegmt=True)}\r\n".encode("latin-1")
        _common_second = now
    return _common_lines


def status_line(int status) -> str:
    """Return the status line. Raises ValueError if the number is not a final status."""
    if not 200 <= status <= 599:
        raise ValueError(f"{status} is not the status of a response")
    return _STATUS_LINES.get(status) or f"HTTP/1.1 {status} Status {status}\r\n"


def _content_type_line(str content_type) -> str:
    if not content_type:
        return ""
    if not _VALUE(content_type):
        raise ValueError("a content type may not hold control characters")
    return f"Content-Type: {content_type}\r\n"


cdef bytes _first(int status, str content_type):
    cdef tuple key = (status, content_type)
    cdef object lines = _first_lines.get(key)
    if lines is None:
        lines = (status_line(status) + _content_type_line(content_type)).encode("latin-1")
        if len(_first_lines) >= _FIRST_LINES_MAX:
            _first_lines.clear()
        _first_lines[key] = lines
    return lines


def headers_text(headers) -> str:
    """Return the application's header lines. Raises ValueError if a name or value would break out of its line."""
    lines = []
    for name, value in headers:
        if not _NAME(name) or name.lower() in _OWNED:
            raise ValueError(f"the header {name!r} cannot be set by the application")
        if not _VALUE(value):
            raise ValueError(f"the value of {name} holds control characters")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


def check(response) -> None:
    """Raise ValueError for a response whose head cannot be sent."""
    _first(response.status, response.content_type)
    headers_text(response.headers)


cdef bint has_body(int status):
    return status >= 200 and status != 204 and status != 304


cdef bytes length_line(Py_ssize_t length):
    cdef char text[48]
    cdef char *end = text + sizeof(text)
    cdef char *at
    memcpy(end - 2, b"\r\n", 2)
    at = put_decimal(end - 2, <unsigned long long>length) - 16
    memcpy(at, b"Content-Length: ", 16)
    return PyBytes_FromStringAndSize(at, end - at)


cpdef bytes response_head(int status, str content_type, bytes lines, headers, str request_id, bint http10, bint keep):
    """Return the complete head. `lines` come from the HTTP layer, `headers` from the application. Raises ValueError if
    it cannot be sent."""
    cdef bytes first = _first(status, content_type)
    cdef bytes extra = headers_text(headers).encode("latin-1") if headers else b""
    cdef bytes connection = b"\r\n"
    # Only a difference from the version's default needs a header; closing always gets one.
    if not keep:
        connection = b"\r\nConnection: close\r\n"
    elif http10:
        connection = b"\r\nConnection: keep-alive\r\n"
    return b"".join((first, _common(), lines, extra, b"X-Request-Id: ", request_id.encode("latin-1"), connection, b"\r\n"))


def whole(response, str request_id) -> bytes:
    """Return a complete response that needs no request and closes its connection."""
    head = response_head(response.status, response.content_type, length_line(len(response.body)), response.headers,
                         request_id, False, False)
    return head + bytes(response.body)
