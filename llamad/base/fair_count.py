"""Owns how many of something each client has: one client leaves a part of it to the others.

Used on the event loop. Must not know what is counted.
"""

from __future__ import annotations

import math
from collections import Counter

CLIENT_SHARE = 0.75  # for one client, at most


def share_of(n: int) -> int:
    """What one client may have of n."""
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
        """Whether one more of this client leaves room for others."""
        return self._counts[client] < share_of(self.n_max)

    def add(self, client: int) -> None:
        self._counts[client] += 1

    def remove(self, client: int) -> None:
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]
