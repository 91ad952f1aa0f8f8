"""Owns the contract between the HTTP layer and the application above it.
Every call comes on the event loop and must return at once; none may touch a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from llamad.http.exchange import Exchange
    from llamad.http.request import Request, Response


class App(Protocol):
    """What the API layer implements. An exception from any of these is logged and becomes a 500."""

    def on_head(self, request: Request) -> Response | None:
        """The head is complete: set request.route and request.key_name. A Response answers without the body."""

    def body_max(self, request: Request) -> int:
        """The largest body in bytes for this request; 0 means Limits.body_max_bytes."""

    def body_buffer(self, request: Request, length: int) -> memoryview | Response | None:
        """A body of `length` bytes, or a chunked one of at most that, is about to arrive: a writable buffer of this
        length that receives it; request.body is then its filled part. None: the HTTP layer allocates. A Response
        answers without the body."""

    def on_request(self, exchange: Exchange) -> None:
        """The body is complete. Must lead to exchange.send(), fail() or begin()..end(), now or later."""

    def on_done(self, exchange: Exchange, seconds: float) -> None:
        """The response is complete, or the client has disconnected. Called exactly once per exchange."""

    def error(self, status: int, message: str, request: Request | None = None) -> Response:
        """An error in the application's format; `request` is the request, if known."""
