"""Owns POST /infill: text between a prefix and a suffix.

Runs on the event loop; long texts are tokenized by a worker (prepare.py). The answer is worded as /completion's.
"""

from __future__ import annotations

from typing import Any

from llamad.api.generate.job import Job
from llamad.api.generate.prepare import prepare
from llamad.api.native.completion import PLAIN
from llamad.api.request import fields
from llamad.api.request import parse as parameters
from llamad.api.request.errors import bad
from llamad.api.request.fim_prompt import FILE_EXTRA, Extra, Infill, refusal
from llamad.api.service.service import Service
from llamad.http.exchange import Exchange


def _side(body: dict[str, Any], name: str) -> str | list[Any]:
    value = body.get(name)
    if value is None:
        raise bad(f'"{name}" is missing; it may be an empty string')
    if not isinstance(value, str | list):
        raise bad(f'"{name}" must be a string, or an array of token ids and strings')
    return value


def _extra(body: dict[str, Any], n_ctx: int) -> Extra:
    value = body.get("input_extra")
    if value is None:
        return []
    if not isinstance(value, list):
        raise bad('"input_extra" must be an array of {"filename": string, "text": string}')
    found = []
    for one in value[-n_ctx:]:  # each has a token at least, so that of those before none would be kept
        if not isinstance(one, dict) or not isinstance(one.get("text"), str):
            raise bad('"input_extra" must hold objects with a string "text"')
        name = one.get("filename")
        if not isinstance(name, str | None):
            raise bad('"input_extra": "filename" must be a string')
        found.append((FILE_EXTRA if name is None else name, one["text"]))
    return found


def handle(service: Service, exchange: Exchange) -> None:
    """POST /infill."""
    model, engine = service.ready()
    error = refusal(model.info)
    if error is not None:
        raise error
    body = fields.json_object(exchange.request.body)
    exchange.request.body = b""
    n_ctx = model.n_ctx_slot
    prefix, suffix = _side(body, "input_prefix"), _side(body, "input_suffix")
    extra, prompt = _extra(body, n_ctx), fields.text(body, "prompt")
    generation = parameters.parse(body, service.defaults, service.constraint)
    # Of an array longer than the context only the end, or the beginning, can be kept: the rest is not even looked at.
    wanted = Infill(
        service.settings,
        prefix if isinstance(prefix, str) else prefix[-n_ctx:],
        suffix if isinstance(suffix, str) else suffix[:n_ctx],
        extra,
        prompt,
        generation.n_predict,
    )
    job = Job(service, exchange, generation, model, engine, PLAIN)
    prepare(service, exchange, generation, model, [wanted], job.submit)
