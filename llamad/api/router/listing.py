"""GET /models, /v1/models and /props of a server with several models.

Runs on the event loop; `?reload` reads the catalogue again first, in a thread.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec

from llamad.api.native.models import adapters_json, anthropic_json, sizes_json
from llamad.api.request.errors import ApiError, shutting_down
from llamad.api.service.error_dialects import is_anthropic
from llamad.api.service.many_models import ManyModels
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.catalogue.entry import Entry

_REMOVABLE = "cache"


def _status_json(models: ManyModels, entry: Entry, has_key: bool) -> dict[str, Any]:
    """Return the status of a model. Paths are in the arguments, so they are for holders of a key only."""
    status: dict[str, Any] = {"value": models.status(entry)}
    if has_key:
        status |= {"args": entry.args, "preset": entry.preset}
    reason, exit_code = models.failure(entry)
    if reason:
        status |= {"failed": True, "exit_code": exit_code}
        status["reason"] = reason if has_key else "see the server's log"
    return status


def entry_json(models: ManyModels, entry: Entry, *, has_key: bool) -> dict[str, Any]:
    served = models.known(entry)
    shown: dict[str, Any] = {
        "id": entry.id,
        "aliases": entry.aliases,
        "tags": entry.tags,
        "object": "model",
        "created": models.service.t_created,
        "owned_by": "llamacpp",
        "status": _status_json(models, entry, has_key),
        "architecture": {
            "input_modalities": models.modalities(entry),
            "output_modalities": ["text"],
        },
        "source": entry.source,
        "can_remove": entry.source == _REMOVABLE,
    }
    if served is not None and served.host.model is not None:
        shown |= sizes_json(served.host.model)
    elif (head := models.head(entry)) is not None:
        shown["meta"] = {
            "n_vocab": head.n_vocab,
            "n_ctx_train": head.n_ctx_train,
            "n_embd": head.n_embd,
            "n_params": head.n_params,
            "size": head.size,
        }
    return shown


def _download_json(models: ManyModels, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "aliases": [],
        "tags": [],
        "object": "model",
        "created": models.service.t_created,
        "owned_by": "llamacpp",
        "status": {"value": "downloading"},
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "source": _REMOVABLE,
        "can_remove": False,
    }


def _entries_json(models: ManyModels, entry: Entry, *, has_key: bool) -> list[dict[str, Any]]:
    """Return a model, and those of its adapters that have names."""
    shown = entry_json(models, entry, has_key=has_key)
    served = models.known(entry)
    return [shown, *(adapters_json(served, shown) if served is not None else ())]


def listing(models: ManyModels, exchange: Exchange) -> None:
    """GET /models and /v1/models."""
    if "reload" in exchange.request.query:
        if not models.service.has_key(exchange.request):
            raise ApiError(401, "Invalid API Key", headers=(("WWW-Authenticate", "Bearer"),))
        models.service.spawn(exchange, _reload(models, exchange))
    else:
        _send(models, exchange)


async def _reload(models: ManyModels, exchange: Exchange) -> None:
    await models.reload()
    _send(models, exchange)


def _send(models: ManyModels, exchange: Exchange) -> None:
    entries = [entry for entry in models.catalogue.entries.values() if not entry.is_hidden]
    listed: dict[str, Any]
    if is_anthropic(exchange.request):
        data = [anthropic_json(models.service, entry.id, models.known(entry)) for entry in entries]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {}
        listed = {"data": data, "has_more": False, **ends}
    else:
        has_key = models.service.has_key(exchange.request)
        shown = list(chain(*(_entries_json(models, entry, has_key=has_key) for entry in entries)))
        shown += [_download_json(models, name) for name in models.downloads.names()]
        listed = {"object": "list", "data": sorted(shown, key=lambda one: str(one["id"]))}
    exchange.send(Response(200, msgspec.json.encode(listed)))


def one(models: ManyModels, exchange: Exchange) -> None:
    """GET /models/{id_model} and /v1/models/{id_model}."""
    name = exchange.request.params["id_model"]
    entry = models.entry(name)
    if is_anthropic(exchange.request):
        shown = anthropic_json(models.service, entry.id, models.known(entry))
    else:
        every = _entries_json(models, entry, has_key=models.service.has_key(exchange.request))
        shown = next((one for one in every if one["id"] == name), every[0])
    exchange.send(Response(200, msgspec.json.encode(shown)))


def props(models: ManyModels, exchange: Exchange) -> None:
    """GET /props without a model."""
    flags = models.service.settings
    shown = {
        "role": "router",
        "max_instances": flags.models_max,
        "models_autoload": flags.models_autoload,
        "model_alias": "llama-server",
        "model_path": "none",
        "default_generation_settings": {"params": {}, "n_ctx": 0},
        "ui": flags.ui,
        "ui_settings": {},
        "build_info": models.service.build_info,
        "cors_proxy_enabled": False,
        "endpoint_slots": flags.endpoint_slots,
        "endpoint_props": flags.endpoint_props,
        "endpoint_metrics": flags.endpoint_metrics,
        "default_model": models.catalogue.default_model,
    }
    exchange.send(Response(200, msgspec.json.encode(shown)))


def health(models: ManyModels, exchange: Exchange) -> None:
    """GET /health without a model: about the daemon, which serves as long as it does not shut down."""
    if models.service.is_leaving and "live" not in exchange.request.query:
        raise shutting_down()
    exchange.send(Response(200, b'{"status":"ok"}'))
