"""What web pages may do: the CORS headers, and the requests that are rejected because of their Origin or Host.
Built from the flags. A verdict depends on the head alone, so it is cached with the head (head_cache.pyx)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from llamad.http.binding import Reach
from llamad.http.request import Response

if TYPE_CHECKING:
    from llamad.http.request import Request

MAX_AGE_SECONDS = 86_400
ANY, AUTO, LOOPBACK = "*", "auto", "localhost"
# The origins of desktop programs on this machine, which are not web pages.
DESKTOP = ("app:", "tauri:", "vscode-webview:")
# Methods without side effects. A page of a foreign origin cannot read the response.
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^\s/,*?#@]+").fullmatch
_HEADER_LIST = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z, \t-]{1,4096}").fullmatch
_CAN_ECHO = re.compile(r"[\x21-\x7e]{1,2048}").fullmatch
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]*)(?::[0-9]*)?").fullmatch
_LOOPBACK = re.compile(r"(?:[^.]+\.)*localhost\.?|127(?:\.[0-9]{1,3}){3}|\[::1\]").fullmatch
# Browsers treat a name whose last label is a number as an IPv4 address, so it cannot be a DNS name.
_ADDRESS = re.compile(r"\[.*\]|(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?").fullmatch
# Domains that nobody can register on the Internet.
_PRIVATE = (".local", ".internal", ".lan", ".home.arpa", ".svc", ".cluster.local")
_SHOWN_MAX = 100


class Verdict(NamedTuple):
    """The CORS headers of the response, and the status and the reason if the request is rejected."""

    lines: str
    refused: tuple[int, str] | None


class Cors:
    """Allows a list of origins; `*` means all, `localhost` this machine's pages, and `auto` all if there are keys, else
    this machine's pages and desktop programs. Pages of this server itself are always allowed, unless anyone could have
    registered its host name."""

    def __init__(
        self,
        origins: Iterable[str] = (ANY,),
        *,
        hosts: Iterable[str] = (),
        own_name: str = "",
        has_keys: bool = False,
        methods: str = "GET, POST",
        headers: str = ANY,
        credentials: bool = False,
    ) -> None:
        words = set(origins)
        self._any = ANY in words or (AUTO in words and has_keys)
        self._loopback = LOOPBACK in words or AUTO in words
        self._desktop = AUTO in words
        self._origins = frozenset(_checked(one) for one in words - {ANY, AUTO, LOOPBACK})
        self._hosts = frozenset(host.lower().rstrip(".") for host in hosts)
        self._own_name = own_name.lower().rstrip(".")  # the name of this machine
        self._has_keys = has_keys
        self._methods = methods
        self._headers = headers
        self._credentials = credentials
        self.reach = Reach.FILES  # who can connect; set by the server before it listens

    @property
    def enabled(self) -> bool:
        return self._any or self._loopback or bool(self._origins)

    def verdict(self, method: str, headers: dict[str, str]) -> Verdict:
        origin, host = headers.get("origin"), headers.get("host")
        if origin is None:
            allowed = True
            lines = "Access-Control-Allow-Origin: *\r\n" if self._any else "Vary: Origin\r\n"
        else:
            allowed = self._allows(origin, host or "")
            lines = self._lines(origin if allowed else "")
        return Verdict(lines if self.enabled else "", self._refusal(method, origin or "", host, allowed))

    def _refusal(self, method: str, origin: str, host: str | None, allowed: bool) -> tuple[int, str] | None:
        misdirected = self._misdirected(host) if host is not None else ""
        if misdirected:
            return 421, misdirected
        if allowed or self._has_keys or method in SAFE:
            return None
        return 403, (
            f"Web pages of the origin {_shown(origin)} may not use this server; start llamad with that origin in"
            " --cors-origins, or with API keys."
        )

    def _misdirected(self, host: str) -> str:
        """Return why the Host is refused, or "" if it is not. This prevents DNS rebinding: with a foreign name that
        points to this machine, a foreign page would count as this server's own. With API keys this is no danger on the
        network, because the page has no key."""
        if self.reach == Reach.FILES or self._serves(host):
            return ""
        if self.reach == Reach.LOOPBACK:
            return (
                f"This server listens on loopback only and does not serve the host {_shown(host)}; use localhost,"
                " or start llamad with --allowed-hosts."
            )
        if self._has_keys or self._is_private(_name(host).rstrip(".")):
            return ""
        return (
            f"This server has no API keys and does not serve the host {_shown(host)}; use its address, or start llamad"
            " with that name in --allowed-hosts, or with API keys."
        )

    def _is_private(self, name: str) -> bool:
        """Return whether a name belongs to this machine or its own network, where a stranger cannot register one. A
        name without a dot is looked up in the own network only."""
        return bool(name) and ("." not in name or name == self._own_name or name.endswith(_PRIVATE))

    def _allows(self, origin: str, host: str) -> bool:
        if not _CAN_ECHO(origin):
            return False
        origin = origin.lower()
        if self._any or origin in self._origins:
            return True
        scheme, _, name = origin.partition("://")
        is_web = scheme in ("http", "https")
        if is_web and name == host.lower():
            return self._serves(host)
        if self._loopback and is_web and _LOOPBACK(_name(name)):
            return True
        return self._desktop and origin.startswith(DESKTOP)

    def _serves(self, host: str) -> bool:
        """Return whether a host is certainly a name or an address of this server."""
        name = _name(host)
        if not name:
            return ANY in self._hosts
        return bool(_LOOPBACK(name) or _ADDRESS(name)) or bool(self._hosts & {name.rstrip("."), ANY})

    def _lines(self, origin: str) -> str:
        if not origin:
            return "Vary: Origin\r\n"
        # Echoing the origin is safe, because it has no control characters.
        return (
            f"Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\n"
            "Access-Control-Expose-Headers: X-Request-Id, X-Llamad-Ignored, Retry-After, X-Should-Retry\r\n"
            + ("Access-Control-Allow-Credentials: true\r\n" if self._credentials else "")
        )

    def is_preflight(self, request: Request) -> bool:
        headers = request.headers
        return self.enabled and "origin" in headers and "access-control-request-method" in headers

    def preflight(self, request: Request) -> Response:
        """Return the response to a preflight request. The verdict's headers, which are added to it, name the origin."""
        if not self._allows(request.headers["origin"], request.headers.get("host", "")):
            return Response(200, content_type="")
        headers = [("Access-Control-Allow-Methods", self._methods)]
        requested = request.headers.get("access-control-request-headers", "")
        # For browsers "*" does not include Authorization, and with credentials it is a literal name.
        if self._headers != ANY:
            headers.append(("Access-Control-Allow-Headers", self._headers))
        elif _HEADER_LIST(requested):
            headers.append(("Access-Control-Allow-Headers", requested))
        headers.append(("Access-Control-Max-Age", str(MAX_AGE_SECONDS)))
        return Response(200, content_type="", headers=tuple(headers))


def _name(host: str) -> str:
    """Return the host without its port, in lower case, or "" if it is not a host."""
    match = _HOST(host.lower())
    return match[1] if match else ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "...")


def _checked(origin: str) -> str:
    origin = origin.strip().rstrip("/").lower()
    if not (_ORIGIN(origin) and origin.isascii()):
        raise ValueError(
            f"{origin!r} is not an origin; use scheme://host[:port], comma-separated, '*' or 'none'"
        )
    return origin
