"""POST /classify and /v1/classify: the raw scores of a classifier's labels.

Runs on the event loop; long texts are tokenized in a worker.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.api.vectors import inputs as shapes
from llamad.api.vectors import vector_job
from llamad.client.embedding import Embedder
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.protocol.model_info import Embeddings, Model

_encode = msgspec.json.Encoder().encode


class ClassifyRequest(Struct):
    inputs: Annotated[str | list[Any] | None, Meta(description="a string or an array of strings")] = None
    model: str | None = None


_BODY = Body(ClassifyRequest)


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /classify and /v1/classify."""
    _, embedder = vector_job.ranking_ready(served, "classification")
    if embedder.info.n_out < 2:
        raise ApiError(501, "This server does not support classification: the model yields a single score")
    with_body(served.service, exchange, _BODY.decode, partial(_start, served, exchange))


def _start(served: ServedModel, exchange: Exchange, request: ClassifyRequest) -> None:
    model, embedder = served.embedder()
    given = request.inputs
    if given is None:
        raise bad('"inputs" must be provided')
    texts = [given] if isinstance(given, str) else given
    if not set(map(type, texts)) <= {str}:
        raise bad('"inputs" must be a string or an array of strings')
    shapes.split(texts, "inputs", served.settings.inputs_max, embedder.info)
    name = served.name if request.model is None else request.model
    served.service.spawn(
        exchange, _answer(served, exchange, model, embedder, texts, name, isinstance(given, list))
    )


async def _answer(
    served: ServedModel,
    exchange: Exchange,
    model: Model,
    embedder: Embedder,
    inputs: list[str],
    name: str,
    is_list: bool,
) -> None:
    texts = await vector_job.in_worker(
        served,
        exchange,
        shapes.n_chars(inputs),
        vector_job.CHARS_INLINE_MAX,
        lambda: shapes.tokenize(inputs, "inputs", model, embedder.info),
    )
    rows = await vector_job.rows_of(served, exchange, model, embedder, texts)
    labels = embedder.info.labels

    def render() -> bytes:
        predictions = [_predictions(one, labels) for one in rows]
        return _encode(
            {
                "model": name,
                "object": "list",
                "usage": vector_job.usage(texts),
                "predictions": predictions if is_list else predictions[0],
            }
        )

    n_scores = sum(one.size for one in rows)
    body = await vector_job.in_worker(served, exchange, n_scores, vector_job.SCORES_INLINE_MAX, render)
    exchange.send(Response(200, body))


def _predictions(row: Embeddings, labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the labels with their scores, highest first; ties keep the model's order."""
    scores = row[0].tolist()
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    return [{"label": labels[i], "score": scores[i]} for i in order]
