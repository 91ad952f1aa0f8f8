"""The only exception of the HTTP layer: an error with its status.
Raised on the event loop. Request.query can raise it inside the application, which must let it pass. The client gets it
as the application's error JSON."""

from __future__ import annotations


class HttpError(Exception):
    """The request is not valid or cannot be served; `message` is a sentence for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
