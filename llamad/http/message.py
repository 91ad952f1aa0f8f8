"""Owns what a request and a whole answer are, and how a request target becomes path and query.
Runs on the event loop; holds no socket and does no I/O."""

from __future__ import annotations

import itertools
import re
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote_to_bytes

import httptools

from llamad.http.errors import HttpError

if TYPE_CHECKING:
    from llamad.http.router import Route

JSON = "application/json; charset=utf-8"

# Visible ASCII without the space, so that an id taken from a client is one field of a log line.
_SANE_ID = re.compile(r"[\x21-\x7e]{1,128}").fullmatch


class Request:
    """One parsed HTTP request. `body` is empty until the handler runs, then complete."""

    __slots__ = (
        "body",
        "buffer",
        "headers",
        "key_name",
        "method",
        "params",
        "path",
        "peer",
        "query",
        "request_id",
        "route",
        "t_start",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        headers: dict[str, str],
        request_id: str,
        peer: str,
        t_start: float,
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers  # lower-case names; repeated ones joined by ", "
        self.body: bytes | memoryview = b""
        self.buffer: object = None  # the application's own: what its body_buffer() needs to remember
        self.request_id = request_id
        self.peer = peer
        self.t_start = (
            t_start  # time.monotonic(), the clock of loop.time() but finer than uvloop's milliseconds
        )
        self.route: Route | None = None
        self.params: dict[str, str] = {}  # the {name} segments of the route, set by Router.resolve
        self.key_name = ""


class Response:
    """A whole answer. An empty content_type sends no Content-Type."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        status: int = 200,
        body: bytes | memoryview = b"",
        content_type: str = JSON,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers


class RequestIds:
    """Makes request ids: a random start for this process and a counter, cheaper than random ones each time."""

    __slots__ = ("_next", "_prefix")

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._next = itertools.count(1).__next__

    def make(self) -> str:
        return f"{self._prefix}-{self._next():06x}"

    def take_or_make(self, offered: str | None) -> str:
        if offered is not None and _SANE_ID(offered):
            return offered
        return f"{self._prefix}-{self._next():06x}"


def parse_target(target: bytes) -> tuple[str, dict[str, str]]:
    """Path and query of a request target in origin form ("/a?b"), absolute form or "*"."""
    if target[:1] == b"/":
        if b"#" in target:
            target = target[: target.index(b"#")]
        raw_path, _, raw_query = target.partition(b"?")
    elif target == b"*":
        return "*", {}
    else:
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError:
            raise HttpError(400, "The request target is not a valid path or URL.") from None
        raw_path, raw_query = url.path or b"/", url.query or b""
    if b"%" in raw_path:
        raw_path = unquote_to_bytes(raw_path)
    path = raw_path.decode("utf-8", "replace")
    return path, parse_query(raw_query) if raw_query else {}


def parse_query(raw: bytes) -> dict[str, str]:
    """Decoded names and values; a name without a value gives "", and the last of a repeated name counts."""
    text = raw.decode("utf-8", "replace")
    return dict(parse_qsl(text, keep_blank_values=True, encoding="utf-8", errors="replace"))


def peer_name(address: object) -> str:
    """A socket's other end as one word: host:port, or "unix"."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "unix"
