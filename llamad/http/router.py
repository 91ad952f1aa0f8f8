"""The table of routes: which handler serves a method and a path. It is filled at start-up, then read-only.
Runs on the event loop; it checks no keys and calls no handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from llamad.http.request import Response

if TYPE_CHECKING:
    from llamad.http.exchange import Exchange
    from llamad.http.request import Request


# The largest body of a route that takes none or only a few fields. Some clients send "{}" with every request.
SMALL_BODY = 8 * 1024


class Intake(Protocol):
    """The checks and the buffer of a body before it arrives, for routes where they depend on the request."""

    def check(self, request: Request) -> None:
        """Raise the application's own exception if the head alone is reason to reject the request."""

    def limit(self, request: Request) -> int:
        """Return the largest allowed body, as App.body_max does."""

    def buffer(self, request: Request, length: int) -> memoryview | None:
        """Return the buffer for the body, as App.body_buffer does, but reject with the application's own exception."""


class Route:
    """One method on one path pattern. The segment {name} matches any non-empty segment; {name...}, as the last one,
    matches the rest of the path."""

    __slots__ = (
        "body_max",
        "handler",
        "intake",
        "is_fixed",
        "method",
        "name",
        "pattern",
        "public",
        "quiet",
        "segments",
    )

    def __init__(
        self,
        method: str,
        pattern: str,
        handler: Callable[[Exchange], None],
        public: bool = False,
        *,
        name: str = "",
        body_max: int = 0,
        intake: Intake | None = None,
        quiet: bool = False,
    ) -> None:
        if not pattern.startswith("/"):
            raise ValueError(f"route pattern {pattern!r} must start with /")
        self.method = method
        self.pattern = pattern
        self.handler = handler
        self.public = public
        self.name = name or pattern  # a label for metrics, of bounded number
        self.body_max = body_max
        self.intake = intake
        self.quiet = quiet  # clients poll it every few seconds, so only failures are logged
        self.segments = pattern.split("/")[1:]
        self.is_fixed = not any(_is_name(s) for s in self.segments)

    @property
    def takes_rest(self) -> bool:
        return self.segments[-1].endswith("...}")

    def parts(self, path: str) -> list[str]:
        """Return the path's segments, aligned with this route's."""
        return path.split("/", len(self.segments) if self.takes_rest else -1)[1:]

    def params(self, path: str) -> dict[str, str]:
        """Return the values of the {name} segments in a matching path."""
        parts = self.parts(path)
        return {
            s[1:-1].removesuffix("..."): p for s, p in zip(self.segments, parts, strict=True) if _is_name(s)
        }

    def __repr__(self) -> str:
        return f"Route({self.method} {self.pattern})"


def _is_name(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}")


def _fits(segment: str, value: str) -> bool:
    return value == segment or (value != "" and _is_name(segment))


class Router:
    """Fixed paths win over patterns; among patterns the one added first wins. `files`, if set, is the route of GET for
    every path that no other route has."""

    __slots__ = ("_fixed", "_patterns", "_rests", "files")

    def __init__(self) -> None:
        self.files: Route | None = None
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: dict[int, list[Route]] = {}  # by number of segments
        self._rests: list[Route] = []  # with {name...}: match at least as many segments as they have

    def add(self, route: Route) -> Route:
        if not route.is_fixed:
            same = self._rests if route.takes_rest else self._patterns.setdefault(len(route.segments), [])
            if any(r.method == route.method and r.pattern == route.pattern for r in same):
                raise ValueError(f"{route} is already there")
            same.append(route)
        else:
            methods = self._fixed.setdefault(route.pattern, {})
            if route.method in methods:
                raise ValueError(f"{route} is already there")
            methods[route.method] = route
        return route

    def match(self, method: str, path: str) -> Route | list[str] | None:
        """Return the route, or the methods that the path has, or None for an unknown path.

        HEAD uses GET's route. For OPTIONS without a route of its own, return the methods.
        """
        methods = self._fixed.get(path)
        if methods is None:
            methods = self._match_patterns(path)
            if not methods:
                return self.files if method in ("GET", "HEAD") else None
        route = methods.get(method)
        if route is None and method == "HEAD":
            route = methods.get("GET")
        return route if route is not None else _allowed(methods)

    def _match_patterns(self, path: str) -> dict[str, Route]:
        n_parts = path.count("/")
        methods: dict[str, Route] = {}
        for route in (*self._patterns.get(n_parts, ()), *self._rests):
            parts = route.parts(path)
            if len(parts) == len(route.segments) and all(map(_fits, route.segments, parts)):
                methods.setdefault(route.method, route)
        return methods

    def find_fixed(self, request: Request) -> Route | None:
        """Return the route if it is a fixed one, as a fast path; otherwise return None, and resolve() decides."""
        methods = self._fixed.get(request.path)
        return methods.get(request.method) if methods is not None else None

    def resolve(self, request: Request, error: Callable[[int, str], Response]) -> Response | None:
        """Set request.route and request.params, or return the 404, the 405 or the response to OPTIONS."""
        match = self.match(request.method, request.path)
        if isinstance(match, Route):
            request.route = match
            if not match.is_fixed:
                request.params = match.params(request.path)
            return None
        if match is None:
            if request.method == "OPTIONS" and request.path == "*":
                return Response(200, content_type="")
            return error(404, "File Not Found")
        allow = (("Allow", ", ".join(match)),)
        if request.method == "OPTIONS":
            return Response(200, content_type="", headers=allow)
        refusal = error(405, f"{request.method} is not allowed here; use {' or '.join(match)}.")
        refusal.headers += allow
        return refusal


def _allowed(methods: dict[str, Route]) -> list[str]:
    names = set(methods) | {"OPTIONS"}
    if "GET" in names:
        names.add("HEAD")
    return sorted(names)
