"""Owns GET /models and /v1/models: the one model that this server has.

Runs on the event loop. Answers while the model is still loading, without its metadata.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.request.errors import ApiError
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response


def _model_json(service: Service, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": name,
        "aliases": service.settings.aliases,
        "tags": service.settings.tags,
        "object": "model",
        "created": service.t_created,
        "owned_by": "llamacpp",
        "meta": None,
    }
    model = service.host.model
    if model is not None:
        info = model.info
        entry["meta"] = {
            "vocab_type": info.vocab_type,
            "n_vocab": info.n_vocab,
            "n_ctx_train": info.n_ctx_train,
            "n_embd": info.n_embd,
            "n_params": info.n_params,
            "size": info.size,
        }
    return entry


def listing(service: Service, exchange: Exchange) -> None:
    """GET /models and /v1/models: always one model."""
    listed = [_model_json(service, service.name_for(exchange.request))]
    exchange.send(Response(200, msgspec.json.encode({"object": "list", "data": listed})))


def handle(service: Service, exchange: Exchange) -> None:
    """GET /models/{id_model} and /v1/models/{id_model}."""
    wanted = exchange.request.params["id_model"]
    name = service.name_for(exchange.request)
    if wanted != name and wanted not in service.settings.aliases:
        raise ApiError(404, f'model "{wanted}" not found; this server has "{name}"')
    exchange.send(Response(200, msgspec.json.encode(_model_json(service, name))))
