"""The memory that a job counts: what its tasks hold, from their submission to their end.

Runs on the event loop. Must not know what a response looks like.
"""

from __future__ import annotations

from collections.abc import Callable

from llamad.base.memory_budget import Claim
from llamad.http.exchange import Exchange


class JobMemory:
    """The claim on memory of a job. It belongs to the request, but lives until the tasks have ended, because they may
    outlive their client."""

    __slots__ = ("_claim", "_exchange", "_n_kept")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._claim: Claim | None = None
        # The bytes of the decoded body that live as long as the job: all of them, unless keep_only() was called.
        self._n_kept = exchange.n_decoded

    def keep_only(self, n_bytes: int) -> None:
        """Keep only this many bytes of the decoded body as long as the job lives, besides its options."""
        self._n_kept = n_bytes

    def count(self, n_bytes: int) -> None:
        """Count the bytes that the tasks will hold instead of the decoded body, which is freed. Raises BudgetFull."""
        self._exchange.count_decoded(n_bytes + self._n_kept)

    def hold(self, give_way: Callable[[], None]) -> None:
        """Hold the memory, because the tasks now exist. Until the engine begins with one, `give_way` ends them if
        another client needs the memory."""
        self._claim = self._exchange.claim.hold()
        self._claim.give_way = give_way

    def stay(self) -> None:
        """Keep the memory even if another client needs it."""
        if self._claim is not None:
            self._claim.give_way = None

    def release(self) -> None:
        """Release the memory, because the tasks have ended."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None
