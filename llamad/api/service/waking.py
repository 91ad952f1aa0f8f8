"""Calls the handlers of requests that need a model's engine: at once if it serves, or after it was loaded.

Runs on the event loop. This is the only place where a request waits for a model. Handlers never wait: one whose model
cannot serve raises the error that says why. Must not know what a request asks for.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable

from llamad.api.request.errors import ApiError
from llamad.api.service.gate import Gate, Ticket
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.http.request import Request
from llamad.models.host_state import State

log = logging.getLogger("llamad.api")

Handler = Callable[[ServedModel, Exchange], None]

_READY = State.READY  # it is read on every request, and an Enum lookup is slow
_ON = ("true", "1")
_REMOVED = 404


def serve(served: ServedModel, exchange: Exchange, handler: Handler) -> None:
    """Let `handler` serve the exchange, which is counted as a use of the model: now, or once the model is loaded,
    unless the client has disconnected by then. Raises ApiError if too many wait."""
    if served.gate is not None:
        _serve_at_gate(served, served.gate, exchange, handler)
        return
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


def _serve_at_gate(served: ServedModel, gate: Gate, exchange: Exchange, handler: Handler) -> None:
    ticket = _entered(served, gate, exchange.request)
    if ticket is None:
        served.service.uses.begin(exchange, served.usage)
        handler(served, exchange)
        return

    async def later() -> None:
        try:
            await ticket.wait()
        except ApiError as error:
            other = gate.again(served.name) if error.status == _REMOVED else None
            if not isinstance(other, ServedModel) or other is served:
                raise
            serve(other, exchange, handler)
            return
        _serve_admitted(served, gate, exchange, handler)

    served.service.spawn(exchange, later(), ticket)


def _serve_admitted(served: ServedModel, gate: Gate, exchange: Exchange, handler: Handler) -> None:
    """Serve a request that has waited, with the model that has its name now: a reload may have changed its defaults, or
    given it another engine. Raises ApiError."""
    try:
        now = gate.again(served.name)
    except ApiError:
        gate.give_back()
        raise
    if isinstance(now, ServedModel) and now.gate is gate:
        served.service.uses.begin(exchange, now.usage)
        handler(now, exchange)
        return
    gate.give_back()
    if not isinstance(now, ServedModel):
        raise ApiError(_REMOVED, f"the model '{served.name}' was removed")
    serve(now, exchange, handler)


def describe(served: ServedModel, exchange: Exchange, handler: Handler) -> None:
    """Let `handler` respond without the model's engine, which need not serve. Only a model of which nothing is known
    yet, because it was never loaded, is loaded first, unless the endpoint is public and the client has no key."""
    is_unknown = served.gate is not None and served.host.model is None
    if is_unknown and served.service.has_key(exchange.request):
        serve(served, exchange, handler)
    else:
        handler(served, exchange)


def _entered(served: ServedModel, gate: Gate, request: Request) -> Ticket | None:
    """Let a request enter the gate. Return None if it may go on at once, else its ticket. Raises ApiError."""
    client, deadline = served.service.client(request), _deadline(served, request)
    return gate.enter(client, served.name, deadline, loads=_loads(served, request))


def _loads(served: ServedModel, request: Request) -> bool:
    """Return whether a request may load its model."""
    asked = request.query.get("autoload")
    return served.service.settings.models_autoload if asked is None else asked in _ON


def _deadline(served: ServedModel, request: Request) -> float:
    limit = served.settings.request_timeout
    return request.t_start + limit if limit > 0 else math.inf


async def until_awake(served: ServedModel, exchange: Exchange) -> None:
    """Return once the model serves, or cannot be loaded. Several callers share one load, which goes on without them.
    The exchange is counted as a use of the model. Raises ApiError after --request-timeout."""
    if served.gate is not None:
        if exchange in served.service.uses:
            return  # it went through the gate already
        ticket = _entered(served, served.gate, exchange.request)
        if ticket is not None:
            try:
                await ticket.wait()
            finally:
                ticket.close()
        served.service.uses.begin(exchange, served.usage)
        return
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
