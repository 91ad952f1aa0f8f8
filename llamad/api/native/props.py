"""Owns /props: the server's settings and defaults.

Runs on the event loop; never waits for the engine.
"""

from __future__ import annotations

import msgspec

from llamad.api.native.slots import slot_json
from llamad.api.request.errors import ApiError
from llamad.api.request.media import MARKER
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host import State

_READY = State.READY  # read on every request; an Enum lookup is slow


def handle(service: Service, exchange: Exchange) -> None:
    """GET /props: public, so it shows nothing of running requests; the operator's texts and paths need a key."""
    request = exchange.request
    if service.host.state is not _READY:
        raise service.not_ready_for(request)
    model = service.loaded()
    has_key, name, media = service.has_key(request), service.name_for(request), service.media
    idle = slot_json(service, 0, service.defaults.options, None)
    if not has_key:
        hidden = {"model": name, "grammar": "", "json_schema": None, "system_prompt": None}
        idle |= hidden
        idle["params"] |= hidden
    settings = service.host.settings
    properties = {
        "assistant_name": service.system.assistant_name,
        "user_name": service.system.anti_prompt,
        "system_prompt": service.system.prompt if has_key else "",
        "default_generation_settings": idle,
        "total_slots": settings.n_parallel,
        "model_alias": name,
        "model_ftype": model.info.ftype,
        "model_path": settings.model if has_key else service.public_name,
        "modalities": {
            "vision": media is not None and media.sees,
            "video": False,
            "audio": media is not None and media.hears,
        },
        "media_marker": MARKER if media is not None else "",
        "ui": settings.ui,
        # What llamad does not have: settings of its page, a proxy for it, idle models that are unloaded.
        "ui_settings": {},
        "cors_proxy_enabled": False,
        "is_sleeping": False,
        "endpoint_slots": settings.endpoint_slots,
        "endpoint_props": settings.endpoint_props,
        "endpoint_metrics": settings.endpoint_metrics,
        "chat_template": service.chat.source if has_key else "",
        "chat_template_caps": service.chat.template.caps.shown(),
        "bos_token": _special(service, model.info.bos),
        "eos_token": _special(service, model.info.eos),
        "build_info": service.build_info,
        "settings": service.public_settings() if has_key else {},
    }
    if model.info.tool_use_template is not None and has_key:
        properties["chat_template_tool_use"] = model.info.tool_use_template
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
