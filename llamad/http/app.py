"""The contract between the HTTP layer and the application above it.
Every call runs on the event loop and must return at once; none may touch a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llamad.http.exchange import Exchange
    from llamad.http.request import Request, Response


class App(Protocol):
    """The interface that the API layer implements. An exception from any method is logged and becomes a 500."""

    def on_head(self, request: Request) -> Response | None:
        """The head is complete: set request.route and request.key_name. If this returns a Response, it is sent and the
        body is not read."""

    def body_max(self, request: Request) -> int:
        """Return the largest body in bytes for this request; 0 means Limits.body_max_bytes."""

    def body_buffer(self, request: Request, length: int) -> memoryview | Response | None:
        """Return a writable buffer for a body of `length` bytes, or a chunked one of at most that, which is about to
        arrive; request.body is then the filled part of the buffer. Return None to let the HTTP layer allocate one. If
        this returns a Response, it is sent and the body is not read."""

    def on_request(self, exchange: Exchange) -> None:
        """The body is complete. Must lead to exchange.send(), fail() or begin()..end(), now or later."""

    def on_done(self, exchange: Exchange, seconds: float) -> None:
        """The response is complete, or the client has disconnected. Called exactly once per exchange."""

    def error(self, status: int, message: str, request: Request | None = None) -> Response:
        """Return an error in the application's format; `request` is None if the request is not known."""
