"""Calls the handlers of requests that need a model's engine: at once if it serves, or after it was loaded again.

Runs on the event loop. This is the only place where a request waits for a model. Handlers never wait: one whose model
cannot serve raises the error that says why. Must not know what a request asks for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from llamad.api.request.errors import ApiError
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.models.host import State

log = logging.getLogger("llamad.api")

Handler = Callable[[ServedModel, Exchange], None]

_READY = State.READY  # it is read on every request, and an Enum lookup is slow


def serve(served: ServedModel, exchange: Exchange, handler: Handler) -> None:
    """Let `handler` serve the exchange, which is counted as a use of the model: now, or once the model is awake, unless
    the client has disconnected by then. Raises ApiError if too many wait."""
    served.service.uses.begin(exchange, served.usage)
    if served.host.state is _READY or not served.can_wake:
        handler(served, exchange)
        return
    place = served.waiting.enter(served.service.client(exchange.request))

    async def later() -> None:
        await until_awake(served, exchange)
        place.close()
        if not exchange.closed:
            handler(served, exchange)

    served.service.spawn(exchange, later(), place)


async def until_awake(served: ServedModel, exchange: Exchange) -> None:
    """Return once the model serves, or cannot be loaded. Several callers share one load, which goes on without them.
    The exchange is counted as a use of the model. Raises ApiError after --request-timeout."""
    served.service.uses.begin(exchange, served.usage)
    limit = served.settings.request_timeout
    left = exchange.request.t_start + limit - time.monotonic() if limit > 0 else None
    host = served.host
    try:
        async with asyncio.timeout(left):
            while host.state is not _READY and served.can_wake:
                if not host.is_waking:
                    log.info("waking the model for request %s", exchange.request.request_id)
                await asyncio.shield(host.begin_load())
    except TimeoutError:
        raise ApiError(408, "The request exceeded --request-timeout while the model was loaded") from None
