"""Owns the endpoints that tell how the server is: /health, /props, /models, /slots.

Runs on the event loop and answers from what the engine published; it never waits for the engine.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.generate.job import Part
from llamad.api.request import generation as options
from llamad.api.request.errors import ApiError
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.models.host import State
from llamad.options.table import Options

_READY = State.READY  # asked for with every request; looking it up in an Enum is slow


def _send(exchange: Exchange, value: object, status: int = 200) -> None:
    exchange.send(Response(status, msgspec.json.encode(value)))


def health(service: Service, exchange: Exchange) -> None:
    """GET /health: 200 as long as requests are taken, also when every slot is busy."""
    host, query = service.host, exchange.request.query
    if host.state is not _READY:
        error = service.not_ready()
        status = "error" if host.state is State.FAILED else host.state.value
        _send(exchange, {"status": status, **error.body()}, error.status)
        return
    if host.engine is not None and host.engine.is_failed:
        error = ApiError(500, "The engine could not be restarted after a failed decode; it keeps trying")
        _send(exchange, {"status": "error", **error.body()}, 500)
        return
    n_idle = _n_idle(service)
    if not query:
        n_busy = service.settings.n_parallel - n_idle
        exchange.send(
            Response(200, b'{"status":"ok","slots_idle":%d,"slots_processing":%d}' % (n_idle, n_busy))
        )
        return
    body: dict[str, Any] = {
        "status": "ok",
        "slots_idle": n_idle,
        "slots_processing": service.settings.n_parallel - n_idle,
    }
    if (
        "include_slots" in query
        and service.settings.endpoint_slots
        and host.engine is not None
        and service.may_see_slots(exchange.request)
    ):
        body["slots"] = slots_json(service)
    if "fail_on_no_slot" in query and n_idle == 0:
        body["status"] = "no slot available"
        body |= ApiError(503, "no slot available").body()
        _send(exchange, body, 503)
        return
    _send(exchange, body)


def _n_idle(service: Service) -> int:
    """Idle slots; a model that only computes vectors has none, and counts its requests instead."""
    engine, embedder = service.host.engine, service.host.embedder
    if engine is not None:
        return engine.n_idle()
    return max(0, service.settings.n_parallel - (embedder.n_jobs if embedder is not None else 0))


def _model_json(service: Service) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "id": service.model_name,
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


def models(service: Service, exchange: Exchange) -> None:
    """GET /v1/models: always one."""
    _send(exchange, {"object": "list", "data": [_model_json(service)]})


def model(service: Service, exchange: Exchange) -> None:
    """GET /v1/models/{id_model}"""
    wanted = exchange.request.params["id_model"]
    if wanted != service.model_name:
        raise ApiError(404, f'model "{wanted}" not found; this server has "{service.model_name}"')
    _send(exchange, _model_json(service))


def _next_token(n_remain: int, n_decoded: int, has_next: bool) -> dict[str, Any]:
    return {
        "has_next_token": has_next,
        "has_new_line": False,
        "n_remain": n_remain,
        "n_decoded": n_decoded,
        "stopped_eos": False,
        "stopped_limit": False,
        "stopped_word": False,
        "stopping_word": "",
    }


def _slot_json(
    service: Service,
    index: int,
    generation: Options,
    part: Part | None,
    counts: tuple[int, int, int, int],
) -> dict[str, Any]:
    """A slot as seed 004 shows it, with 000's flat fields beside."""
    model = service.loaded()
    ready = None if part is None else part.job.ready
    constraint = service.grammars.known(service.constraint) if ready is None else ready.constraint
    grammar = "" if constraint is None else constraint.text
    wanted = service.constraint if part is None else part.job.constraint
    params = options.settings_json(generation, wanted, model.n_ctx_slot, service.model_name, grammar=grammar)
    prompt = (
        "" if part is None else model.vocab.detokenize(part.tokens_prompt, True).decode("utf-8", "replace")
    )
    task_id = -1 if part is None else part.task_id
    n_decoded = counts[2] if part is not None else 0
    n_remain = generation.n_predict - n_decoded if part is not None and generation.n_predict >= 0 else -1
    return {
        **params,
        "id": index,
        "id_task": task_id,
        "task_id": task_id,
        "n_ctx": model.n_ctx_slot,
        "speculative": False,
        "is_processing": part is not None,
        "state": int(part is not None),
        "n_tokens": counts[1],
        "params": params,
        "prompt": prompt,
        "next_token": _next_token(n_remain, n_decoded, part is not None or counts[1] == 0),
    }


def slots_json(service: Service) -> list[dict[str, Any]]:
    _, engine = service.ready()
    counts = engine.slots()
    busy = {running.slot: running.sink for running in engine.tasks.values() if running.slot >= 0}
    idle = service.defaults.options
    out = []
    for index, numbers in enumerate(counts):
        part = busy.get(index)
        part = part if isinstance(part, Part) else None
        out.append(_slot_json(service, index, idle if part is None else part.job.generation, part, numbers))
    return out


def slots(service: Service, exchange: Exchange) -> None:
    """GET /slots."""
    if not service.settings.endpoint_slots:
        raise ApiError(501, "This server does not support slots endpoint. Start it with `--slots`")
    _, engine = service.ready()
    if exchange.request.query.get("fail_on_no_slot", "0") not in ("", "0") and engine.n_idle() == 0:
        raise ApiError(503, "no slot available")
    _send(exchange, slots_json(service))


def props(service: Service, exchange: Exchange) -> None:
    """GET /props: public, so nothing of a running request is in it."""
    model = service.loaded()
    idle = service.defaults.options
    _send(
        exchange,
        {
            "assistant_name": service.system.assistant_name,
            "user_name": service.system.anti_prompt,
            "system_prompt": service.system.prompt,
            "default_generation_settings": _slot_json(service, 0, idle, None, (0, 0, 0, 0)),
            "total_slots": service.settings.n_parallel,
            "model_alias": service.model_name,
            "model_path": service.settings.model,
            "chat_template": model.info.chat_template,
            "bos_token": _special(service, model.info.bos),
            "eos_token": _special(service, model.info.eos),
            "build_info": service.build_info,
            "settings": service.public_settings(),
        },
    )


def _special(service: Service, token: int) -> str:
    model = service.loaded()
    return model.vocab.piece(token, True).decode("utf-8", "replace") if token >= 0 else ""


def set_props(service: Service, exchange: Exchange) -> None:
    """POST /props: the contract lists no property that can be set yet."""
    if not service.settings.endpoint_props:
        raise ApiError(
            501, "This server does not support changing global properties. Start it with `--props`"
        )
    _send(exchange, {"success": True})
