"""GET /models and /v1/models: the models that this server has, in OpenAI's format with Ollama's beside it, or in
Anthropic's for its client.

Runs on the event loop. Answers while the model is still loading, without its metadata.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import Any

import msgspec

from llamad.api.request.errors import ApiError
from llamad.api.request.reported_context import Scale
from llamad.api.service.adapters import JOINT
from llamad.api.service.error_dialects import is_anthropic
from llamad.api.service.model_table import ModelTable
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host_state import State
from llamad.protocol.model_info import Model

_STATUS = {
    State.READY: "loaded",
    State.SLEEPING: "sleeping",
    State.FAILED: "failed",
    State.UNLOADED: "unloaded",
    State.DRAINING: "unloaded",
}


def _model_json(served: ServedModel, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": name,
        "aliases": served.settings.aliases,
        "tags": served.settings.tags,
        "object": "model",
        "created": served.service.t_created,
        "owned_by": "llamacpp",
        "status": {"value": _STATUS.get(served.host.state, "loading")},
        "meta": None,
    }
    model = served.host.model
    if model is not None:
        entry |= sizes_json(model)
    return entry


def sizes_json(model: Model) -> dict[str, Any]:
    """Return what an entry tells about a model that was loaded. Clients look for the context in several places."""
    return {"context_length": model.n_ctx_slot, "meta": meta_json(model)}


def meta_json(model: Model) -> dict[str, Any]:
    info = model.info
    return {
        "vocab_type": info.vocab_type,
        "n_vocab": info.n_vocab,
        "n_ctx": model.n_ctx_slot,
        "n_ctx_train": info.n_ctx_train,
        "n_embd": info.n_embd,
        "n_params": info.n_params,
        "size": info.size,
        "ftype": info.ftype,
    }


def _ollama_json(served: ServedModel, name: str) -> dict[str, Any]:
    """Return a model in Ollama's format, as llama-server lists it, with what is known."""
    model = served.host.model
    family, size, ftype = ("", "", "")  # empty while the model is loading
    if model is not None:
        family, size, ftype = model.info.arch, short_count(model.info.n_params), model.info.ftype
    embeds = served.host.engine is None and model is not None
    return {
        "name": name,
        "model": name,
        "modified_at": _stamp(served.service.t_created),
        "size": model.info.size if model is not None else 0,
        "digest": "",
        "type": "model",
        "description": "",
        "tags": served.settings.tags,
        "capabilities": ["embedding"]
        if embeds
        else ["completion", *(["multimodal"] if served.media else [])],
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


def short_count(n: int) -> str:
    """Return a number of parameters as Ollama writes it."""
    for unit, letter, digits in ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0)):
        if n >= unit:
            return f"{n / unit:.{digits}f}{letter}"
    return str(n)


def anthropic_json(service: Service, name: str, served: ServedModel | None) -> dict[str, Any]:
    """Return a model in Anthropic's format. Once the model was loaded it has the context, in the scale of the counts of
    /v1/messages."""
    created = _stamp(service.t_created)
    shown: dict[str, Any] = {"type": "model", "id": name, "display_name": name, "created_at": created}
    if served is not None and served.host.model is not None:
        shown["max_input_tokens"] = Scale.of(served.settings, served.host.model).n_reported
    return shown


def _stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def adapters_json(served: ServedModel, base: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the adapters that clients can request as models; `base` is the model's own entry."""
    name = base["id"]
    named = [one for one in served.host.adapters.list() if one.file.name]
    return [
        {**base, "id": f"{name}{JOINT}{one.file.name}", "aliases": [], "root": name, "parent": name}
        for one in named
    ]


def _entries_json(served: ServedModel, name: str) -> list[dict[str, Any]]:
    base = _model_json(served, name)
    return [base, *adapters_json(served, base)]


def listing(models: ModelTable, exchange: Exchange) -> None:
    """GET /models and /v1/models: list the models, and those of their adapters that have names."""
    named = [(one, one.name_for(exchange.request)) for one in models]
    listed: dict[str, Any]
    if is_anthropic(exchange.request):
        data = [anthropic_json(one.service, name, one) for one, name in named]
        listed = {"data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}
    else:
        entries = [_entries_json(one, name) for one, name in named]
        listed = {
            "object": "list",
            "data": list(chain(*entries)),
            "models": [_ollama_json(one, name) for one, name in named],
        }
    exchange.send(Response(200, msgspec.json.encode(listed)))


def handle(models: ModelTable, exchange: Exchange) -> None:
    """GET /models/{id_model} and /v1/models/{id_model}."""
    id_model = exchange.request.params["id_model"]
    is_other = is_anthropic(exchange.request)
    named = [(one, one.name_for(exchange.request)) for one in models]
    for one, name in named:
        if id_model == name or id_model in one.settings.aliases:
            shown = anthropic_json(one.service, name, one) if is_other else _model_json(one, name)
            exchange.send(Response(200, msgspec.json.encode(shown)))
            return
        for entry in () if is_other else _entries_json(one, name)[1:]:
            if id_model == entry["id"]:
                exchange.send(Response(200, msgspec.json.encode(entry)))
                return
    known = ", ".join(f'"{name}"' for _, name in named)
    raise ApiError(404, f'model "{id_model}" not found; this server has {known}')
