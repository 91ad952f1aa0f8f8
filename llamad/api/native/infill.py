"""POST /infill: generates the text between a prefix and a suffix.

Runs on the event loop; a worker tokenizes long texts (prepare.py). The format of the response is that of /completion.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, field

from llamad.api.generate.job import Job
from llamad.api.generate.prepare import prepare
from llamad.api.native.completion import PLAIN
from llamad.api.native.native_request import NativeRequest
from llamad.api.request import constraints
from llamad.api.request.errors import bad
from llamad.api.request.fim_prompt import Extra, Infill, refusal
from llamad.api.request.prompt import text_alone
from llamad.api.service.body_reading import with_options
from llamad.api.service.served_model import ServedModel
from llamad.flags.settings import ModelSettings
from llamad.http.exchange import Exchange

Side = Annotated[str | list[Any] | None, Meta(description="a string, or an array of token ids and strings")]


class InfillRequest(NativeRequest, kw_only=True):
    input_prefix: Side = None
    input_suffix: Side = None
    input_extra: Annotated[
        list[Extra], Meta(description='an array of {"filename": string, "text": string}')
    ] = field(default_factory=list)
    prompt: Annotated[str | dict[str, Any], Meta(description="a string, or an object with one")] = ""


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /infill."""
    model, _ = served.ready()
    error = refusal(model.info)
    if error is not None:
        raise error
    with_options(served, exchange, InfillRequest, partial(_start, served, exchange))


def _start(served: ServedModel, exchange: Exchange, request: InfillRequest) -> None:
    model, engine = served.ready()
    if request.image_data:
        raise bad('"image_data" cannot be used here: infilling is for text')
    constraint = constraints.parse(request, served.constraint)
    job = Job(served, exchange, request, constraint, model, engine, PLAIN)
    job.memory.keep_only(0)
    prompt = _taken(request, served.settings, model.n_ctx_slot)
    prepare(served, exchange, request, constraint, model, [prompt], job.submit)


def _taken(request: InfillRequest, settings: ModelSettings, n_ctx: int) -> Infill:
    """Move the texts out of the request, whose options live longer.

    Only the end or the beginning of an array that is longer than the context can be kept, so the rest is never read.
    """
    before, after = _side(request.input_prefix, "input_prefix"), _side(request.input_suffix, "input_suffix")
    prompt = Infill(
        settings,
        before if isinstance(before, str) else before[-n_ctx:],
        after if isinstance(after, str) else after[:n_ctx],
        request.input_extra[-n_ctx:],  # each of them has at least one token
        text_alone(request.prompt, "prompt"),
        request.n_predict,
    )
    request.input_prefix = request.input_suffix = None
    request.input_extra = []
    return prompt


def _side(value: str | list[Any] | None, name: str) -> str | list[Any]:
    if value is None:
        raise bad(f'"{name}" is missing; it may be an empty string')
    return value
