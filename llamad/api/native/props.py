"""/props: the server's settings and defaults.

Runs on the event loop; never waits for the engine.
"""

from __future__ import annotations

from functools import partial

import msgspec

from llamad.api.native.slots import slot_json
from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError
from llamad.api.request.media import MARKER
from llamad.api.request.parse import Defaults
from llamad.api.request.prompt import TEXT_INLINE_MAX
from llamad.api.request.system_prompt import tokenized
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host_state import State
from llamad.options.values import SystemPrompt


def handle(served: ServedModel, exchange: Exchange) -> None:
    """GET /props. It is public, so it shows nothing of running requests; the operator's texts and paths need a key."""
    request = exchange.request
    try:
        model = served.described()
    except ApiError:
        raise served.not_ready_for(request) from None
    key, name, media = served.service.find_key(request), served.name_for(request), served.media
    has_key, system = key is not None, served.key_states.system(key or "")
    idle = slot_json(served, 0, served.defaults.options, None)
    if not has_key:
        hidden = {"model": name, "grammar": "", "json_schema": None, "system_prompt": None}
        idle |= hidden
        idle["params"] |= hidden
    settings, flags = served.settings, served.service.settings
    properties = {
        "assistant_name": system.assistant_name,
        "user_name": system.anti_prompt,
        "system_prompt": system.prompt if has_key else "",
        "default_generation_settings": idle,
        "total_slots": settings.n_parallel,
        "model_alias": name,
        "model_ftype": model.info.ftype,
        "model_path": settings.model if has_key else served.public_name,
        "modalities": {
            "vision": media is not None and media.sees,
            "video": False,
            "audio": media is not None and media.hears,
        },
        "media_marker": MARKER if media is not None else "",
        "ui": flags.ui,
        # What llamad does not have: settings of its page, a proxy for it.
        "ui_settings": {},
        "cors_proxy_enabled": False,
        "is_sleeping": served.host.state is State.SLEEPING,
        "endpoint_slots": flags.endpoint_slots,
        "endpoint_props": flags.endpoint_props,
        "endpoint_metrics": flags.endpoint_metrics,
        "chat_template": served.chat.source if has_key else "",
        "chat_template_caps": served.chat.template.caps.shown(),
        "bos_token": _special(served, model.info.bos),
        "eos_token": _special(served, model.info.eos),
        "build_info": served.service.build_info,
        "settings": served.public_settings() if has_key else {},
    }
    if model.info.tool_use_template is not None and has_key:
        properties["chat_template_tool_use"] = model.info.tool_use_template
    exchange.send(Response(200, msgspec.json.encode(properties)))


def _special(served: ServedModel, token: int) -> str:
    model = served.described()
    return model.vocab.piece(token, True).decode("utf-8", "replace") if token >= 0 else ""


class Properties(msgspec.Struct):
    """What POST /props can set."""

    system_prompt: SystemPrompt | None = None


def set_props(served: ServedModel, exchange: Exchange) -> None:
    """POST /props: set the system prompt for later requests of this key."""
    if not served.service.settings.endpoint_props:
        raise ApiError(
            501, "This server does not support changing global properties. Start it with `--props`"
        )
    served.described()
    if not exchange.request.body:
        _succeed(exchange)
        return
    with_body(served.service, exchange, partial(_read, served.defaults), partial(_set, served, exchange))


def _read(defaults: Defaults, body: bytes | memoryview) -> Properties:
    return Body(Properties, defaults.special).decode(body)


def _set(served: ServedModel, exchange: Exchange, properties: Properties) -> None:
    system = properties.system_prompt
    if system is None:
        _succeed(exchange)
    elif len(system.prompt) <= TEXT_INLINE_MAX:
        _change(served, exchange, tokenized(system, served.described()))
    else:
        served.service.spawn(exchange, _set_later(served, exchange, system))


async def _set_later(served: ServedModel, exchange: Exchange, system: SystemPrompt) -> None:
    work = partial(tokenized, system, served.described())
    new = await served.count_text(exchange.request, len(system.prompt), work)
    served.described()
    if not exchange.closed:
        _change(served, exchange, new)


def _change(served: ServedModel, exchange: Exchange, system: SystemPrompt) -> None:
    served.key_states.set_system(exchange.request.key_name, system)
    _succeed(exchange)


def _succeed(exchange: Exchange) -> None:
    exchange.send(Response(200, b'{"success":true}'))
