"""Owns the access log's line. Runs on the event loop; it must never show a query value, a header or a body."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamad.http.exchange import Exchange

PATH_MAX = 200


def escape(text: str, limit: int) -> str:
    """Printable ASCII on one line and without spaces or quotes: what a client sent cannot forge a log line."""
    if len(text) > limit:
        text = text[:limit] + "..."
    if text.isascii() and text.isprintable() and not (" " in text or '"' in text or "\\" in text):
        return text
    return "".join(c if "!" <= c <= "~" and c not in '"\\' else _escape_char(c) for c in text)


def _escape_char(c: str) -> str:
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"


def access_line(exchange: Exchange, seconds: float) -> str:
    """peer, id, "METHOD path", status, body bytes sent, milliseconds, key name."""
    request = exchange.request
    key = escape(request.key_name, 64) if request.key_name else "-"
    return (
        f'{request.peer} {request.request_id} "{request.method} {escape(request.path, PATH_MAX)}" '
        f"{exchange.status} {exchange.sent_bytes} {seconds * 1e3:.1f}ms {key}"
    )
