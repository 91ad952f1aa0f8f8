"""Owns /props: the server's settings and defaults.

Runs on the event loop; never waits for the engine.
"""

from __future__ import annotations

import msgspec

from llamad.api.native.slots import slot_json
from llamad.api.request.errors import ApiError
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response


def handle(service: Service, exchange: Exchange) -> None:
    """GET /props: public, so it shows nothing of running requests."""
    model = service.loaded()
    idle = service.defaults.options
    properties = {
        "assistant_name": service.system.assistant_name,
        "user_name": service.system.anti_prompt,
        "system_prompt": service.system.prompt,
        "default_generation_settings": slot_json(service, 0, idle, None, (0, 0, 0, 0)),
        "total_slots": service.settings.n_parallel,
        "model_alias": service.model_name,
        "model_path": service.settings.model,
        "chat_template": model.info.chat_template,
        "bos_token": _special(service, model.info.bos),
        "eos_token": _special(service, model.info.eos),
        "build_info": service.build_info,
        "settings": service.public_settings(),
    }
    exchange.send(Response(200, msgspec.json.encode(properties)))


def _special(service: Service, token: int) -> str:
    model = service.loaded()
    return model.vocab.piece(token, True).decode("utf-8", "replace") if token >= 0 else ""


def set_props(service: Service, exchange: Exchange) -> None:
    """POST /props: there is no property yet that can be set."""
    if not service.settings.endpoint_props:
        raise ApiError(
            501, "This server does not support changing global properties. Start it with `--props`"
        )
    exchange.send(Response(200, msgspec.json.encode({"success": True})))
