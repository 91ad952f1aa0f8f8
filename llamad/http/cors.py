"""Owns the CORS headers. Built once from --cors-origins, then read-only.
Runs on the event loop; never allows credentials, so a page cannot use a visitor's cookies here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from llamad.http.request import Response

if TYPE_CHECKING:
    from llamad.http.request import Request

METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS"
MAX_AGE_SECONDS = 86_400
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^\s/,*?#@]+").fullmatch
_HEADER_LIST = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z, \t-]{1,4096}").fullmatch


class Cors:
    """any: every origin, as "*". Otherwise the origins of the set are echoed; an empty set sends nothing."""

    __slots__ = ("_any", "_origins")

    def __init__(self, origins: Iterable[str] | None = None) -> None:
        """None: any origin; else only these."""
        self._any = origins is None
        self._origins = frozenset() if origins is None else frozenset(_checked(o) for o in origins)

    @classmethod
    def parse(cls, text: str) -> Cors:
        """The value of --cors-origins: "*", "none" or comma-separated origins."""
        text = text.strip()
        if text == "*":
            return cls(None)
        if text.lower() == "none":
            return cls(())
        return cls([part.strip() for part in text.split(",") if part.strip()] or [text])

    @property
    def enabled(self) -> bool:
        return self._any or bool(self._origins)

    def is_preflight(self, request: Request) -> bool:
        headers = request.headers
        return self.enabled and "origin" in headers and "access-control-request-method" in headers

    def preflight(self, request: Request) -> Response:
        """The response to a preflight request; head_text() adds the origin itself."""
        if not self._any and request.headers["origin"] not in self._origins:
            return Response(204, content_type="")
        headers = [
            ("Access-Control-Allow-Methods", METHODS),
            ("Access-Control-Max-Age", str(MAX_AGE_SECONDS)),
        ]
        wanted = request.headers.get("access-control-request-headers", "")
        if _HEADER_LIST(wanted):
            headers.insert(1, ("Access-Control-Allow-Headers", wanted))
        return Response(204, content_type="", headers=tuple(headers))

    def head_text(self, request: Request) -> str:
        """The header lines of every response to this request."""
        if self._any:
            if "origin" in request.headers:
                return (
                    "Access-Control-Allow-Origin: *\r\n"
                    "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n"
                )
            return "Access-Control-Allow-Origin: *\r\n"
        if not self._origins:
            return ""
        origin = request.headers.get("origin", "")
        if origin in self._origins:
            # Echoing is safe: the value equals one of the configured origins.
            return (
                f"Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\n"
                "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n"
            )
        return "Vary: Origin\r\n"


def _checked(origin: str) -> str:
    origin = origin.strip().rstrip("/").lower() if origin != "null" else origin
    if not (_ORIGIN(origin) and origin.isascii()):
        raise ValueError(
            f"{origin!r} is not an origin; use scheme://host[:port], comma-separated, '*' or 'none'"
        )
    return origin
