"""Owns the bytes of an answer's head: status lines, the cached Date, and the check of what the app puts in.
Pure functions on the event loop; they write to no socket."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
# Written here or a matter of framing: an app that could set them could break the connection.
_OWNED = {"connection", "content-length", "content-type", "date", "keep-alive", "server", "trailer"}
_OWNED |= {"transfer-encoding", "upgrade", "x-request-id"}


class _Clock:
    """The lines that are the same for every answer within one second."""

    __slots__ = ("second", "text")

    def __init__(self) -> None:
        self.second = 0
        self.text = ""


_clock = _Clock()


def common_text() -> str:
    now = int(time.time())
    if now != _clock.second:
        _clock.text = f"Server: llamad\r\nDate: {formatdate(now, usegmt=True)}\r\n"
        _clock.second = now
    return _clock.text


def has_body(status: int) -> bool:
    return status >= 200 and status != 204 and status != 304


@lru_cache(maxsize=256)
def status_line(status: int) -> str:
    """Raises ValueError for a number that is no final status."""
    if not 200 <= status <= 599:
        raise ValueError(f"{status} is not the status of an answer")
    return _STATUS_LINES.get(status) or f"HTTP/1.1 {status} Status {status}\r\n"


@lru_cache(maxsize=64)
def content_type_text(content_type: str) -> str:
    """Raises ValueError for a value that would break out of its line."""
    if not content_type:
        return ""
    if not _VALUE(content_type):
        raise ValueError("a content type may not hold control characters")
    return f"Content-Type: {content_type}\r\n"


def headers_text(headers: Iterable[tuple[str, str]]) -> str:
    """The app's own header lines. Raises ValueError for a name or value that would break out of its line."""
    lines = []
    for name, value in headers:
        if not _NAME(name) or name.lower() in _OWNED:
            raise ValueError(f"the header {name!r} cannot be set by the application")
        if not _VALUE(value):
            raise ValueError(f"the value of {name} holds control characters")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines)


def connection_text(http10: bool, keep: bool) -> str:
    """Only what differs from the version's default needs saying; closing is always said."""
    if not keep:
        return "Connection: close\r\n"
    return "Connection: keep-alive\r\n" if http10 else ""
