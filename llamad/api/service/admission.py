"""Limits how many requests may wait for one thing, and how many of them one client may have.

Used on the event loop. Must not know what they wait for.
"""

from __future__ import annotations

from llamad.api.request.errors import queue_full, share_full
from llamad.base.fair_count import FairCount


class Place:
    """A request that is counted until close(). As a context manager, it returns the number of its client."""

    def __init__(self, counts: FairCount, client: int) -> None:
        self._counts: FairCount | None = counts
        self._client = client
        counts.add(client)

    def close(self) -> None:
        if self._counts is not None:
            self._counts.remove(self._client)
            self._counts = None

    def __enter__(self) -> int:
        return self._client

    def __exit__(self, *_: object) -> None:
        self.close()


class Admission(FairCount):
    def enter(self, client: int) -> Place:
        """Count a request immediately, so that the limit also holds for many requests in one turn of the event loop.
        Raises ApiError if too many requests, or too many of this client's, are counted already."""
        if self.is_full:
            raise queue_full()
        if not self.has_share(client):
            raise share_full()
        return Place(self, client)
