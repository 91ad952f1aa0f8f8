"""Owns what a job counts of the memory for requests: what its tasks hold, from their submission to their end.

Runs on the event loop. Must not know what an answer looks like.
"""

from __future__ import annotations

from collections.abc import Callable

from llamad.base.memory_budget import Claim
from llamad.http.exchange import Exchange


class JobMemory:
    """The claim is the request's own, but lives until the tasks have ended: they may outlive their client."""

    __slots__ = ("_claim", "_exchange", "_n_kept")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._claim: Claim | None = None
        # The part of the decoded body that lives as long as the job: all of it, unless its maker says otherwise.
        self._n_kept = exchange.n_decoded

    def keep_only(self, n_bytes: int) -> None:
        """Of the decoded body only so many bytes live as long as the job, beside its options."""
        self._n_kept = n_bytes

    def count(self, n_bytes: int) -> None:
        """The tasks will hold so many bytes, and the decoded body is let go of. Raises BudgetFull."""
        self._exchange.count_decoded(n_bytes + self._n_kept)

    def hold(self, give_way: Callable[[], None]) -> None:
        """The tasks exist. Until the engine begins with one, `give_way` ends them if another client needs the room."""
        self._claim = self._exchange.claim.hold()
        self._claim.give_way = give_way

    def stay(self) -> None:
        """Nothing is taken from it any more."""
        if self._claim is not None:
            self._claim.give_way = None

    def release(self) -> None:
        """The tasks have ended."""
        if self._claim is not None:
            self._claim.release()
            self._claim = None
