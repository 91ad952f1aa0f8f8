"""Owns the errors of getting a model by name."""

from __future__ import annotations


class HubError(Exception):
    """A model that cannot be had: a sentence that says what to do.

    An outage (no connection, 429, 5xx, a connection that breaks off) may pass: it is worth another try after
    `retry_seconds`, or a look into the cache.
    """

    def __init__(self, message: str, *, is_outage: bool = False, retry_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.is_outage = is_outage
        self.retry_seconds = retry_seconds


class Cancelled(HubError):
    """Whoever wanted the model no longer does. What has arrived is kept."""

    def __init__(self) -> None:
        super().__init__("the download was cancelled; it goes on from there the next time")
