"""POST /v1/chat/completions/control: acts on a chat completion that is running.

Runs on the event loop.
"""

from __future__ import annotations

from functools import partial

import msgspec

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.body_reading import with_body
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response

REASONING_END = "reasoning_end"

_encode = msgspec.json.Encoder().encode


class ControlRequest(msgspec.Struct):
    id: str = ""
    action: str = ""
    model: str | None = None


_BODY = Body(ControlRequest)


def handle(service: Service, exchange: Exchange) -> None:
    """POST /v1/chat/completions/control and /chat/completions/control."""
    with_body(service, exchange, _BODY.decode, partial(_control, service, exchange))


def _control(service: Service, exchange: Exchange, request: ControlRequest) -> None:
    if not request.id:
        raise bad('"id" is missing: the id of a completion, or the X-Request-Id of its request')
    if request.action != REASONING_END:
        raise bad(f'"action": unknown control action; use "{REASONING_END}"')
    failure = _refusal(service, exchange.request.key_name, request.id)
    reply = {"success": False, "message": failure} if failure else {"success": True}
    exchange.send(Response(200, _encode(reply)))


def _refusal(service: Service, key: str, id: str) -> str:
    """End the reasoning of the completion. Return the reason if this is not possible, else ""."""
    completion = service.running.find(key, id)
    if completion is not None and completion.key != key:
        raise ApiError(404, "no such completion")
    if completion is None or not completion.is_admitted:
        return "no active completion for this id"
    if not completion.is_controlled:
        return "reasoning control not enabled for this completion"
    completion.end_thinking()
    return ""
