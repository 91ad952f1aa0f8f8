"""Where requests of one model wait for its engine, if the daemon has many models.

Used on the event loop. The fleet decides when a request may go on, and knows by the gate when it has ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from llamad.api.request.errors import ApiError, bad, share_full
from llamad.api.service.admission import Place
from llamad.api.service.usage import Usage
from llamad.base.fair_count import FairCount
from llamad.models.fleet.fleet import Fleet, RefusedError
from llamad.models.fleet.transitions import NOT_LOADED

UNLIMITED = 1 << 30


class FleetUsage(Usage):
    """The uses of a model whose engine belongs to a fleet. begin() adds one to those that the fleet has admitted."""

    __slots__ = ("_engine_id", "_fleet")

    def __init__(self, fleet: Fleet, engine_id: str) -> None:
        super().__init__()
        self._fleet = fleet
        self._engine_id = engine_id

    def begin(self) -> None:
        super().begin()
        self._fleet.join(self._engine_id)

    def end(self) -> None:
        super().end()
        self._fleet.leave(self._engine_id)


class Gate:
    """The gate of one engine, at which at most `queue_max` requests wait (0: no limit), and not all of them of the same
    client. Variants of a model share it. `again` finds the model of a name if its engine was removed while a request
    waited, because its settings have changed."""

    def __init__(
        self, fleet: Fleet, engine_id: str, queue_max: int, again: Callable[[str], object | None]
    ) -> None:
        self.engine_id = engine_id
        self.usage = FleetUsage(fleet, engine_id)
        self.again = again
        self._fleet = fleet
        self._waiting = FairCount(queue_max or UNLIMITED)

    @property
    def is_running(self) -> bool:
        """Whether the engine serves or is about to."""
        return self._fleet.is_running(self.engine_id)

    def enter(
        self, client: int, name: str, deadline: float = math.inf, *, loads: bool = True
    ) -> Ticket | None:
        """Count a request for a model of this name. Return None if it may go on at once, else the ticket with which it
        waits. Raises ApiError if it cannot wait, or if the engine would have to be loaded for it and `loads` does not
        allow that."""
        if not loads and not self.is_running:
            raise bad(NOT_LOADED)
        try:
            future = self._fleet.enter(self.engine_id, name, deadline, loads=loads)
        except RefusedError as error:
            raise _api_error(error) from None
        if future is None:
            return None
        if future.done():
            _raise_refusal(future)
        if not self._waiting.has_share(client):
            future.cancel()
            raise share_full("--models-queue-max")
        return Ticket(self, future, Place(self._waiting, client))

    def keep(self, seconds: float) -> None:
        """Let the engine sleep no sooner than after so many idle seconds."""
        self._fleet.keep(self.engine_id, seconds)

    @property
    def idle_limit(self) -> float:
        """Return after how many idle seconds the engine sleeps; negative: never."""
        return self._fleet.idle_limit(self.engine_id)

    def unload(self) -> None:
        """Unload the engine once its running requests have ended."""
        if self.is_running:
            self._fleet.unload(self.engine_id)

    def give_back(self) -> None:
        """Note that an admitted request was not begun."""
        self._fleet.leave(self.engine_id)


class Ticket:
    """A request that waits. close() withdraws it, unless it has begun."""

    def __init__(self, gate: Gate, future: asyncio.Future[None], place: Place) -> None:
        self._gate = gate
        self._future = future
        self._place = place
        self._has_begun = False

    async def wait(self) -> None:
        """Return when the request may go on. Raises ApiError."""
        await asyncio.wait([self._future])
        self._place.close()
        _raise_refusal(self._future)
        self._has_begun = True

    def close(self) -> None:
        self._place.close()
        if self._has_begun:
            return
        if not self._future.done():
            self._future.cancel()
        elif not self._future.cancelled() and self._future.exception() is None:
            self._gate.give_back()


def _raise_refusal(future: asyncio.Future[None]) -> None:
    """Raise the error with which a wait has ended, if it has."""
    error = future.exception()
    if isinstance(error, RefusedError):
        raise _api_error(error) from None


def _api_error(error: RefusedError) -> ApiError:
    headers = (("Retry-After", str(error.retry_after)),) if error.retry_after is not None else ()
    return ApiError(error.status, str(error), headers=headers)
