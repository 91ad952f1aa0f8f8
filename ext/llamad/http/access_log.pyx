# Owns: a request's line in the access log, as text and as JSON. Runs on the event loop; it must never show a query
# value, a header or a body, and it does not know what the application's details mean.
from json.encoder import encode_basestring_ascii as encode_string

from llamad.http.exchange cimport Exchange
from llamad.http.request cimport Request

PATH_MAX = 200
FAILURE_MAX = 300
NAME_MAX = 128


def escape(text: str, limit: int) -> str:
    """Return printable ASCII on one line without spaces or quotes, so that a client cannot forge a log line."""
    if len(text) > limit:
        text = text[:limit] + "..."
    if text.isascii() and text.isprintable() and not (" " in text or '"' in text or "\\" in text):
        return text
    return "".join([c if "!" <= c <= "~" and c not in '"\\' else _escape_char(c) for c in text])


def _escape_char(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def shown(method: str, path: str) -> str:
    """Return method and path as the log shows them."""
    return f'"{method} {escape(path, PATH_MAX)}"'


def quoted(text: str, limit: int) -> str:
    """Escape a text but keep its spaces, and put it in quotes. Quotes within it become single quotes."""
    words = text[:limit].replace('"', "'").split(" ")
    return '"' + " ".join([escape(word, limit) for word in words]) + '"'


cdef bint _is_plain(str text):
    """Return whether a text needs no escapes in a JSON string."""
    cdef Py_UCS4 c
    for c in text:
        if not 0x20 <= c <= 0x7e or c == 0x22 or c == 0x5c:
            return False
    return True


cdef str _json_string(str text):
    return f'"{text}"' if _is_plain(text) else encode_string(text)


cdef str _milliseconds(double seconds):
    cdef long long tenths = <long long>(seconds * 1e4 + 0.5)
    return f"{tenths // 10}.{tenths % 10}"


def text_line(Exchange exchange, double seconds) -> str:
    """Return the line as text: peer, id, "METHOD path", status, body bytes sent, milliseconds, key name; then the
    details as words "name=value", and error="..." if there is one."""
    cdef Request request = exchange.request
    cdef str what = request.head.shown if request.head is not None else shown(request.method, request.path)
    cdef str key = escape(request.key_name, NAME_MAX) if request.key_name else "-"
    cdef str line = (f"{request.peer} {request.request_id} {what} {exchange.status} {exchange.sent_bytes} "
                     f"{_milliseconds(seconds)}ms {key}")
    if exchange.details is not None:
        for name, value in exchange.details():
            if type(value) is float:
                line += f" {name}={_milliseconds(value)}"
            else:
                line += f" {name}={escape(value, NAME_MAX) if type(value) is str else value}"
    return f"{line} error={quoted(exchange.failure, FAILURE_MAX)}" if exchange.failure else line


def json_line(Exchange exchange, double seconds) -> str:
    """Return the line as the fields of a JSON object, without the braces."""
    cdef Request request = exchange.request
    cdef str path = request.head.path if request.head is not None else request.path
    cdef str line = (f'"peer":"{request.peer}","id":{_json_string(request.request_id)},'
                     f'"method":{_json_string(request.method)},"path":{_json_string(path[:PATH_MAX])},'
                     f'"status":{exchange.status},"bytes":{exchange.sent_bytes},"ms":{_milliseconds(seconds)}')
    if request.key_name:
        line += f',"key":{_json_string(request.key_name)}'
    if exchange.details is not None:
        for name, value in exchange.details():
            if type(value) is float:
                line += f',"{name}":{_milliseconds(value)}'
            else:
                line += f',"{name}":{_json_string(value) if type(value) is str else value}'
    return f'{line},"error":{_json_string(exchange.failure[:FAILURE_MAX])}' if exchange.failure else line
