"""The errors of downloading a model by name."""

from __future__ import annotations


class HubError(Exception):
    """The model cannot be downloaded; the text says why and what to do.

    An outage (no connection, 429, 5xx, a broken connection) may be temporary: the caller may try again after
    `retry_seconds`, or use the cache.
    """

    def __init__(self, message: str, *, is_outage: bool = False, retry_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.is_outage = is_outage
        self.retry_seconds = retry_seconds


class Cancelled(HubError):
    """The model is no longer needed. The bytes that have arrived are kept."""

    def __init__(self) -> None:
        super().__init__("the download was cancelled; the next one continues from there")
