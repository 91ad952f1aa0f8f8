# Owns: the access log's line. Runs on the event loop; it must never show a query value, a header or a body, except for
# what an error's message quotes of one.
from llamad.http.exchange cimport Exchange
from llamad.http.request cimport Request

PATH_MAX = 200
FAILURE_MAX = 300


def escape(text: str, limit: int) -> str:
    """Printable ASCII on one line and without spaces or quotes: what a client sent cannot forge a log line."""
    if len(text) > limit:
        text = text[:limit] + "..."
    if text.isascii() and text.isprintable() and not (" " in text or '"' in text or "\\" in text):
        return text
    return "".join([c if "!" <= c <= "~" and c not in '"\\' else _escape_char(c) for c in text])


def _escape_char(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def shown(method: str, path: str) -> str:
    """A request as the log shows it."""
    return f'"{method} {escape(path, PATH_MAX)}"'


def quoted(text: str, limit: int) -> str:
    """As escape(), but with its spaces, in quotes; its own quotes become single ones, to stay readable."""
    words = text[:limit].replace('"', "'").split(" ")
    return '"' + " ".join([escape(word, limit) for word in words]) + '"'


cpdef str access_line(Exchange exchange, double seconds):
    """peer, id, "METHOD path", status, body bytes sent, milliseconds, key name; then an error's message, if there is
    one."""
    cdef Request request = exchange.request
    cdef str what = request.head.shown if request.head is not None else shown(request.method, request.path)
    cdef str key = escape(request.key_name, 64) if request.key_name else "-"
    cdef long long tenths = <long long>(seconds * 1e4 + 0.5)
    cdef str line = (f"{request.peer} {request.request_id} {what} {exchange.status} {exchange.sent_bytes} "
                     f"{tenths // 10}.{tenths % 10}ms {key}")
    return f"{line} {quoted(exchange.failure, FAILURE_MAX)}" if exchange.failure else line
