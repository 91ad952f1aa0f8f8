"""GET /health.

Runs on the event loop and answers from what the engine has published; never waits for the engine.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.native.slots import with_slots
from llamad.api.request.errors import ApiError
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host_state import State

_LOADING = (State.LOADING, State.RESTARTING)


def _send(exchange: Exchange, value: object, error: ApiError | None = None) -> None:
    status, reason = (error.status, error.message) if error is not None else (200, "")
    exchange.send(Response(status, msgspec.json.encode(value), reason=reason))


def handle(served: ServedModel, exchange: Exchange) -> None:
    """GET /health: 200 while requests are accepted, even if every slot is busy or the model sleeps. With ?live it is
    200 whenever this process answers, because a restart would not make loading or draining faster."""
    host, query = served.host, exchange.request.query
    if "live" in query:
        exchange.send(Response(200, b'{"status":"live"}'))
        return
    if not served.accepts or served.service.is_leaving:
        state = State.DRAINING if served.service.is_leaving else host.state
        error = served.not_ready_for(exchange.request)
        status = "error" if state is State.FAILED else state.value
        progress = {"progress": host.progress} if state in _LOADING else {}
        _send(exchange, {"status": status, **error.body(), **progress}, error)
        return
    n_idle = served.n_idle_slots
    if not query:
        n_busy = served.settings.n_parallel - n_idle
        exchange.send(
            Response(200, b'{"status":"ok","slots_idle":%d,"slots_processing":%d}' % (n_idle, n_busy))
        )
        return
    body: dict[str, Any] = {
        "status": "ok",
        "slots_idle": n_idle,
        "slots_processing": served.settings.n_parallel - n_idle,
    }
    if (
        "include_slots" in query
        and served.service.settings.endpoint_slots
        and host.engine is not None
        and served.service.has_key(exchange.request)
    ):
        with_slots(served, exchange, lambda slots: _send_state(exchange, {**body, "slots": slots}))
    else:
        _send_state(exchange, body)


def _send_state(exchange: Exchange, body: dict[str, Any]) -> None:
    if "fail_on_no_slot" in exchange.request.query and body["slots_idle"] == 0:
        error = ApiError(503, "no slot available")
        _send(exchange, {**body, "status": "no slot available", **error.body()}, error)
    else:
        _send(exchange, body)
