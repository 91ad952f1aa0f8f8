"""Owns the HTTP layer's only exception: a refusal with its status.
Runs on the event loop; never leaves llamad.http, a client sees it as the app's error JSON."""

from __future__ import annotations


class HttpError(Exception):
    """The bytes of a client cannot become a request; `message` is for that client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
