"""GET and POST /lora-adapters: the adapters of the model, and their scales for a key's requests that name none.

Runs on the event loop.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.request.errors import bad
from llamad.api.request.structured_options import adapter_scales
from llamad.api.service.served_model import ServedModel
from llamad.client.adapters import Adapter, UnknownAdapter
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.protocol.model_info import Model


def _json(adapter: Adapter, scale: float, model: Model) -> dict[str, Any]:
    info = adapter.info
    entry: dict[str, Any] = {
        "id": info.id,
        "path": adapter.file.path,
        "scale": scale,
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


def listing(served: ServedModel, exchange: Exchange) -> None:
    """GET /lora-adapters: list the adapters with the scales of the request's key."""
    model, adapters = served.described(), served.host.adapters
    scales = adapters.scales(served.key_states.scales(exchange.request.key_name))
    entries = [_json(one, scales[one.info.id], model) for one in adapters.list()]
    exchange.send(Response(200, msgspec.json.encode(entries)))


def change(served: ServedModel, exchange: Exchange) -> None:
    """POST /lora-adapters: set the scales for later requests of the key. Running requests keep the old ones."""
    served.described()
    try:
        sent = msgspec.json.decode(exchange.request.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad(f"The body is not valid JSON: {error}") from None
    if not isinstance(sent, list):
        raise bad('The body must be an array of objects with "id" and "scale"')
    try:
        scales = served.host.adapters.choose(adapter_scales(sent))
    except UnknownAdapter as error:
        raise bad(f"there is no adapter {error}; GET /lora-adapters lists those of this server") from None
    served.key_states.set_scales(exchange.request.key_name, scales)
    exchange.send(Response(200, b'{"success":true}'))
