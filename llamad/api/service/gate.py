"""Where requests of one model wait for its engine, if the daemon has many models.

Used on the event loop. The fleet decides when a request may go on, and knows by the gate when it has ended.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from llamad.api.request.errors import ApiError
from llamad.api.service.usage import Usage
from llamad.models.fleet.fleet import Fleet, RefusedError


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
    """The gate of one engine. Variants of a model share it. `again` finds the model of a name if its engine was removed
    while a request waited, because its settings have changed."""

    def __init__(self, fleet: Fleet, engine_id: str, again: Callable[[str], object | None]) -> None:
        self.engine_id = engine_id
        self.usage = FleetUsage(fleet, engine_id)
        self.again = again
        self._fleet = fleet

    @property
    def is_running(self) -> bool:
        """Whether the engine serves or is about to."""
        return self._fleet.is_running(self.engine_id)

    def enter(self, deadline: float = math.inf) -> Ticket | None:
        """Count a request. Return None if it may go on at once, else the ticket with which it waits. Raises ApiError if
        it cannot wait."""
        try:
            future = self._fleet.enter(self.engine_id, deadline)
        except RefusedError as error:
            raise _api_error(error) from None
        if future is None:
            return None
        ticket = Ticket(self, future)
        if future.done():
            ticket.result()
        return ticket

    def give_back(self) -> None:
        """Note that an admitted request was not begun."""
        self._fleet.leave(self.engine_id)


class Ticket:
    """A request that waits. close() withdraws it, unless it has begun."""

    def __init__(self, gate: Gate, future: asyncio.Future[None]) -> None:
        self._gate = gate
        self._future = future
        self._has_begun = False

    async def wait(self) -> None:
        """Return when the request may go on. Raises ApiError."""
        await asyncio.wait([self._future])
        self.result()
        self._has_begun = True

    def result(self) -> None:
        """Raise the error with which the wait has ended, if it has."""
        error = self._future.exception()
        if isinstance(error, RefusedError):
            raise _api_error(error) from None

    def close(self) -> None:
        if self._has_begun:
            return
        if not self._future.done():
            self._future.cancel()
        elif not self._future.cancelled() and self._future.exception() is None:
            self._gate.give_back()


def _api_error(error: RefusedError) -> ApiError:
    headers = (("Retry-After", str(error.retry_after)),) if error.retry_after is not None else ()
    return ApiError(error.status, str(error), headers=headers)
