"""Owns GET and POST /lora-adapters: the adapters of the model, and their scales for requests that name none.

Runs on the event loop.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.request.errors import bad
from llamad.api.request.special import adapter_scales
from llamad.api.service.service import Service
from llamad.client.adapters import Adapter, UnknownAdapter
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.protocol.model_info import Model


def _json(adapter: Adapter, model: Model) -> dict[str, Any]:
    info = adapter.info
    entry: dict[str, Any] = {
        "id": info.id,
        "path": adapter.file.path,
        "scale": adapter.scale,
        "task_name": info.task_name,
        "prompt_prefix": info.prompt_prefix,
    }
    if info.invocation:
        text = b"".join(model.vocab.piece(token, True) for token in info.invocation)
        entry["alora_invocation_string"] = text.decode("utf-8", "replace")
        entry["alora_invocation_tokens"] = info.invocation
    if adapter.file.name:
        entry["name"] = adapter.file.name
    return entry


def listing(service: Service, exchange: Exchange) -> None:
    """GET /lora-adapters."""
    model = service.loaded()
    found = [_json(one, model) for one in service.host.adapters.list()]
    exchange.send(Response(200, msgspec.json.encode(found)))


def change(service: Service, exchange: Exchange) -> None:
    """POST /lora-adapters: from the next request on. Running ones keep what they began with."""
    service.loaded()
    try:
        sent = msgspec.json.decode(exchange.request.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad(f"The body is not valid JSON: {error}") from None
    if not isinstance(sent, list):
        raise bad('The body must be an array of objects with "id" and "scale"')
    try:
        service.host.adapters.set_scales(adapter_scales(sent))
    except UnknownAdapter as error:
        raise bad(f"there is no adapter {error}; GET /lora-adapters lists those of this server") from None
    exchange.send(Response(200, b'{"success":true}'))
