"""POST /api/embed and its older form, POST /api/embeddings.

Runs on the event loop; a worker tokenizes long texts and encodes large responses.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from llamad.api.ollama import keep_alive
from llamad.api.ollama.keep_alive import KeepAlive
from llamad.api.ollama.lines import stamp
from llamad.api.ollama.request import bare_name
from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.ignored_fields import LeftOut
from llamad.api.service import waking
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.api.vectors import float_text, vector_job
from llamad.api.vectors import inputs as shapes
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.options.option import LEFT_OUT
from llamad.options.ranges import Many
from llamad.protocol.model_info import Embeddings

_EUCLIDEAN, _AS_IT_IS = 2, -1  # values of --embd-normalize

_encode = msgspec.json.Encoder().encode


class EmbedRequest(Struct, kw_only=True):
    model: str = ""
    input: Annotated[str | list[Any], Meta(description="a string or an array of strings")] = ""
    prompt: str = ""  # the older form has one text, under this name
    truncate: bool = True
    dimensions: Many = LEFT_OUT
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    keep_alive: KeepAlive = None


_BODY = Body(EmbedRequest)


def embed(served: ServedModel, exchange: Exchange) -> None:
    """POST /api/embed."""
    _handle(served, exchange, is_older=False)


def embeddings(served: ServedModel, exchange: Exchange) -> None:
    """POST /api/embeddings."""
    _handle(served, exchange, is_older=True)


def _handle(served: ServedModel, exchange: Exchange, *, is_older: bool) -> None:
    if keep_alive.asks_to_unload(exchange):
        body = _BODY.decode(exchange.request.body)
        keep_alive.unload(served)
        _send_none(served, exchange, body, LeftOut(), is_older)
        return
    waking.serve(served, exchange, partial(_begin, is_older))


def _begin(is_older: bool, served: ServedModel, exchange: Exchange) -> None:
    vector_job.embedding_ready(served)
    with_body(served.service, exchange, _BODY.decode, partial(_start, served, exchange, is_older))


def _start(served: ServedModel, exchange: Exchange, is_older: bool, body: EmbedRequest) -> None:
    _, embedder = served.embedder()
    if embedder.info.pooling == "none" and not embedder.info.is_pooling_open:
        raise ApiError(
            400, "Pooling type 'none' gives no vector for a text; start llamad with another --pooling"
        )
    if body.dimensions > embedder.info.n_out:
        raise bad(f'"dimensions" must be at most {embedder.info.n_out}, the size of this model\'s vectors')
    left_out = LeftOut()
    keep_alive.keep(served, body.keep_alive, left_out)
    given = body.prompt if is_older else body.input
    if not given:
        _send_none(served, exchange, body, left_out, is_older)
        return
    name = "prompt" if is_older else "input"
    if isinstance(given, list) and not all(isinstance(one, str) for one in given):
        raise bad(f'"{name}" must be a string or an array of strings')
    inputs = shapes.split(given, name, served.settings.inputs_max, embedder.info)
    for option, value in body.options.items():
        if value is not None:  # they are for generated text, or sizes of a load
            left_out.add(option, "options")
    served.service.spawn(exchange, _respond(served, exchange, body, inputs, name, left_out))


def _send_none(
    served: ServedModel, exchange: Exchange, body: EmbedRequest, left_out: LeftOut, is_older: bool
) -> None:
    """Respond to a request without texts, which only loads or unloads the model."""
    name = body.model or served.name
    none: dict[str, Any] = {"embedding": []} if is_older else {"model": name, "embeddings": []}
    headers = left_out.headers(exchange.request.request_id)
    exchange.send(Response(200, _encode(none), headers=headers))


async def _respond(
    served: ServedModel,
    exchange: Exchange,
    body: EmbedRequest,
    inputs: list[Any],
    name: str,
    left_out: LeftOut,
) -> None:
    t_start = exchange.request.t_start
    model, embedder = served.embedder()
    adapters = partial(
        vector_job.adapters_for, served, exchange.request.key_name, bare_name(body.model) or None, None
    )
    adapters()  # a wrong name is refused before anything is tokenized
    before_ns = round((time.monotonic() - t_start) * 1e9)
    texts = await vector_job.in_worker(
        served,
        exchange,
        shapes.n_chars(inputs),
        vector_job.CHARS_INLINE_MAX,
        lambda: shapes.tokenize(inputs, name, model, embedder.info, truncates=body.truncate),
    )
    rows = await vector_job.rows_of(served, exchange, model, embedder, texts, None, adapters)
    is_older = name == "prompt"
    n_dimensions = embedder.info.n_out if body.dimensions == LEFT_OUT else body.dimensions
    work = partial(_vectors, rows, n_dimensions, _AS_IT_IS if is_older else _EUCLIDEAN)
    n_floats = sum(one.size for one in rows)
    vectors = await vector_job.in_worker(served, exchange, n_floats, vector_job.FLOATS_INLINE_MAX, work)
    shown: dict[str, Any] = {"embedding": vectors[0]}
    if not is_older:
        shown = {
            "model": body.model or served.name,
            "created_at": stamp(),
            "embeddings": vectors,
            "total_duration": round((time.monotonic() - t_start) * 1e9),
            "load_duration": before_ns,
            "prompt_eval_count": vector_job.usage(texts)["prompt_tokens"],
        }
    headers = left_out.headers(exchange.request.request_id)
    exchange.send(Response(200, _encode(shown), headers=headers))


def _vectors(rows: list[Embeddings], n_dimensions: int, normalize: int) -> list[msgspec.Raw]:
    """Return a vector for each text, as JSON. Rows of tokens become their mean."""
    vectors = []
    for one in rows:
        if len(one) > 1:
            one = one.mean(axis=0, keepdims=True, dtype="float64").astype("float32")
        (vector,) = float_text.normalize(one[:, :n_dimensions], normalize)
        vectors.append(msgspec.Raw(float_text.to_json(vector)))
    return vectors
