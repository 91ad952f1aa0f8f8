"""Owns GET /models and /v1/models: the one model that this server has, in OpenAI's form, Ollama's beside it, or
Anthropic's for its client.

Runs on the event loop. Answers while the model is still loading, without its metadata.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from llamad.api.request.errors import ApiError
from llamad.api.service.adapters import JOINT
from llamad.api.service.error_dialects import is_anthropic
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host import State

_STATUS = {
    State.READY: "loaded",
    State.FAILED: "failed",
    State.DRAINING: "unloaded",
}


def _model_json(service: Service, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": name,
        "aliases": service.host.settings.aliases,
        "tags": service.settings.tags,
        "object": "model",
        "created": service.t_created,
        "owned_by": "llamacpp",
        "status": {"value": _STATUS.get(service.host.state, "loading")},
        "meta": None,
    }
    model = service.host.model
    if model is not None:
        info = model.info
        entry["meta"] = {
            "vocab_type": info.vocab_type,
            "n_vocab": info.n_vocab,
            "n_ctx": model.n_ctx_slot,
            "n_ctx_train": info.n_ctx_train,
            "n_embd": info.n_embd,
            "n_params": info.n_params,
            "size": info.size,
            "ftype": info.ftype,
        }
    return entry


def _ollama_json(service: Service, name: str) -> dict[str, Any]:
    """Ollama's form, as llama-server lists it, with what is known."""
    model = service.host.model
    family, size, ftype = ("", "", "")  # while it loads
    if model is not None:
        family, size, ftype = model.info.arch, _short(model.info.n_params), model.info.ftype
    embeds = service.host.engine is None and model is not None
    return {
        "name": name,
        "model": name,
        "modified_at": _stamp(service.t_created),
        "size": model.info.size if model is not None else 0,
        "digest": "",
        "type": "model",
        "description": "",
        "tags": service.settings.tags,
        "capabilities": ["embedding"]
        if embeds
        else ["completion", *(["multimodal"] if service.media else [])],
        "parameters": "",
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": family,
            "families": [family] if family else [],
            "parameter_size": size,
            "quantization_level": ftype,
        },
    }


def _short(n: int) -> str:
    """A number of parameters as Ollama writes it."""
    for unit, letter, digits in ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0)):
        if n >= unit:
            return f"{n / unit:.{digits}f}{letter}"
    return str(n)


def _anthropic_json(service: Service, name: str) -> dict[str, Any]:
    return {"type": "model", "id": name, "display_name": name, "created_at": _stamp(service.t_created)}


def _stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _adapters_json(service: Service, name: str) -> list[dict[str, Any]]:
    """Adapters that can be asked for as models."""
    base = _model_json(service, name)
    named = [one for one in service.host.adapters.list() if one.file.name]
    return [
        {**base, "id": f"{name}{JOINT}{one.file.name}", "aliases": [], "root": name, "parent": name}
        for one in named
    ]


def listing(service: Service, exchange: Exchange) -> None:
    """GET /models and /v1/models: one model, and its adapters that have names."""
    name = service.name_for(exchange.request)
    listed: dict[str, Any]
    if is_anthropic(exchange.request):
        data = [_anthropic_json(service, name)]
        listed = {"data": data, "has_more": False, "first_id": name, "last_id": name}
    else:
        listed = {
            "object": "list",
            "data": [_model_json(service, name), *_adapters_json(service, name)],
            "models": [_ollama_json(service, name)],
        }
    exchange.send(Response(200, msgspec.json.encode(listed)))


def handle(service: Service, exchange: Exchange) -> None:
    """GET /models/{id_model} and /v1/models/{id_model}."""
    wanted = exchange.request.params["id_model"]
    name = service.name_for(exchange.request)
    if not is_anthropic(exchange.request):
        for one in _adapters_json(service, name):
            if wanted == one["id"]:
                exchange.send(Response(200, msgspec.json.encode(one)))
                return
    if wanted != name and wanted not in service.settings.aliases:
        raise ApiError(404, f'model "{wanted}" not found; this server has "{name}"')
    form = _anthropic_json if is_anthropic(exchange.request) else _model_json
    exchange.send(Response(200, msgspec.json.encode(form(service, name))))
