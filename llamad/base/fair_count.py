"""Counts how many of something each client has, so that one client cannot take everything.

Used on the event loop. It must not know what is counted.
"""

from __future__ import annotations

import math
from collections import Counter

CLIENT_SHARE = 0.75  # the most that one client may have


def share_of(n: int) -> int:
    """Return how many of n one client may have."""
    return math.ceil(n * CLIENT_SHARE)


class FairCount:
    def __init__(self, n_max: int) -> None:
        self.n_max = n_max
        self._counts: Counter[int] = Counter()

    def __len__(self) -> int:
        return self._counts.total()

    @property
    def is_full(self) -> bool:
        return len(self) >= self.n_max

    def has_share(self, client: int) -> bool:
        """Return whether this client may have one more."""
        return self._counts[client] < share_of(self.n_max)

    def add(self, client: int) -> None:
        self._counts[client] += 1

    def remove(self, client: int) -> None:
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]
