"""POST /rerank and its aliases: how well each document answers a query.

Runs on the event loop; long texts are tokenized in a worker. A request with `documents` gets Jina's response format,
one with `texts` TEI's.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import bad
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.api.vectors import inputs as shapes
from llamad.api.vectors import vector_job
from llamad.client.embedding import Embedder
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.options.option import LEFT_OUT
from llamad.options.ranges import Count
from llamad.protocol.model_info import Model, VectorInfo

_encode = msgspec.json.Encoder().encode


Documents = Annotated[list[Any] | None, Meta(description="a non-empty array of strings")]


class RerankRequest(Struct):
    query: Annotated[str | None, Meta(description="a non-empty string")] = None
    documents: Documents = None
    texts: Documents = None
    top_n: Count = LEFT_OUT
    return_documents: bool = False
    return_text: bool = False
    raw_scores: bool = False
    model: str | None = None


_BODY = Body(RerankRequest)


class RerankInputs(msgspec.Struct, frozen=True):
    """The options of a request."""

    query: str
    field: str  # the name of the field with the documents
    documents: list[str]
    top_n: int
    is_tei: bool
    with_text: bool
    raw_scores: bool
    model: str


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /rerank, /reranking, /v1/rerank and /v1/reranking."""
    vector_job.ranking_ready(served, "reranking")
    with_body(served.service, exchange, _BODY.decode, partial(_start, served, exchange))


def _start(served: ServedModel, exchange: Exchange, request: RerankRequest) -> None:
    model, embedder = served.embedder()
    inputs = _parse(served, request)
    served.service.spawn(exchange, _answer(served, exchange, model, embedder, inputs))


def _parse(served: ServedModel, request: RerankRequest) -> RerankInputs:
    if request.query is None:
        raise bad('"query" must be provided')
    if not request.query:
        raise bad('"query" must be a non-empty string')
    is_tei = request.texts is not None
    field, documents = "documents", request.documents
    if documents is None and is_tei:
        field, documents = "texts", request.texts
    if not documents:
        raise bad(f'"{field}" must be a non-empty array of strings')
    shapes.check_count(documents, field, served.settings.inputs_max)
    return RerankInputs(
        query=request.query,
        field=field,
        documents=[_document(one, f"{field}[{i}]") for i, one in enumerate(documents)],
        top_n=len(documents) if request.top_n == LEFT_OUT else request.top_n,
        is_tei=is_tei,
        with_text=request.return_text if is_tei else request.return_documents,
        raw_scores=request.raw_scores or not is_tei,
        model=served.name if request.model is None else request.model,
    )


def _document(value: Any, name: str) -> str:
    text = value.get("text") if isinstance(value, dict) else value
    if not isinstance(text, str):
        raise bad(f'"{name}" must be a string, or an object with a string "text"')
    return text


async def _answer(
    served: ServedModel, exchange: Exchange, model: Model, embedder: Embedder, inputs: RerankInputs
) -> None:
    texts = await vector_job.in_worker(
        served,
        exchange,
        len(inputs.query) + shapes.n_chars(inputs.documents),
        vector_job.CHARS_INLINE_MAX,
        lambda: pairs(inputs.query, inputs.documents, inputs.field, model, embedder.info),
    )
    rows = await vector_job.rows_of(served, exchange, model, embedder, texts)
    scores = [float(one[0, 0]) for one in rows]
    exchange.send(Response(200, _encode(_json(inputs, scores, vector_job.usage(texts)))))


def pairs(query: str, documents: list[str], field: str, model: Model, info: VectorInfo) -> list[bytes]:
    """Return the tokens of the query with each document: as in the model's template, or else with the model's special
    tokens between them."""
    template = model.info.rerank_template
    ids = model.info
    end = ids.eos if ids.eos >= 0 else ids.sep
    for i, document in enumerate(documents):
        shapes.check_length(len(query) + len(document), f'{field}[{i}]" with "query', model, info)
    begin = _packed([ids.bos] if ids.add_bos else []) + shapes.text_tokens(query, model, special=False)
    middle = _packed(([end] if ids.add_eos else []) + ([ids.sep] if ids.add_sep else []))
    last = _packed([end] if ids.add_eos else [])
    sequences = []
    for i, document in enumerate(documents):
        if template is not None:
            filled = _filled(template, query, document)
            tokens = model.vocab.tokenize(filled.encode("utf-8", "replace"), False, True)
        else:
            tokens = begin + middle + shapes.text_tokens(document, model, special=False) + last
        name = f"{field}[{i}]"
        if not tokens:
            raise bad(f'"{name}" and "query" are empty')
        if len(tokens) // 4 > info.n_text_max:
            raise shapes.too_long(f'{name}" with "query', len(tokens) // 4, info)
        sequences.append(tokens)
    return sequences


def _filled(template: str, query: str, document: str) -> str:
    """Fill in the template in one pass, so that a client's text is never taken for a placeholder."""
    values = {"{query}": query, "{document}": document}
    return re.sub(r"\{query\}|\{document\}", lambda match: values[match[0]], template)


def _packed(ids: list[int]) -> bytes:
    return b"".join(one.to_bytes(4, "little") for one in ids if one >= 0)


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))


def _json(inputs: RerankInputs, scores: list[float], usage: dict[str, int]) -> Any:
    """Return the response with the best document first; ties keep their order."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[: inputs.top_n]
    if inputs.is_tei:
        return [
            {
                "index": i,
                **({"text": inputs.documents[i]} if inputs.with_text else {}),
                "score": scores[i] if inputs.raw_scores else _sigmoid(scores[i]),
            }
            for i in order
        ]
    results = [
        {
            "index": i,
            "relevance_score": scores[i],
            **({"document": {"text": inputs.documents[i]}} if inputs.with_text else {}),
        }
        for i in order
    ]
    return {"model": inputs.model, "object": "list", "usage": usage, "results": results}
