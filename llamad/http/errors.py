"""Owns the HTTP layer's only exception: an error with its status.
Raised on the event loop. The application lets one of Request.query pass. A client sees it as the app's error JSON."""

from __future__ import annotations


class HttpError(Exception):
    """A client's bytes are not a valid request; `message` is for that client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
