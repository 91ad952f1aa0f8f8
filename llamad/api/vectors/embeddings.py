"""POST /embedding, /embeddings and /v1/embeddings: vectors of texts, which may have images or sound.

Runs on the event loop; a worker tokenizes long texts and encodes large responses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.request.structured_options import adapter_scales
from llamad.api.service.admission import Place
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.api.vectors import float_text, vector_job
from llamad.api.vectors import inputs as shapes
from llamad.client.adapters import Use
from llamad.client.embedding import Embedder
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.options.option import LEFT_OUT
from llamad.options.ranges import LastN, Many
from llamad.protocol.model_info import Embeddings, Model

_encode = msgspec.json.Encoder().encode


Input = Annotated[
    str | list[Any] | dict[str, Any] | None,
    Meta(description="a string, or an array of strings, token ids or arrays of token ids"),
]


class EmbeddingRequest(Struct):
    input: Input = None
    content: Input = None  # the older name of `input`
    image_data: list[Any] = msgspec.field(default_factory=list)
    encoding_format: Annotated[Literal["float", "base64"], Meta(description='"float" or "base64"')] = "float"
    dimensions: Many = LEFT_OUT
    embd_normalize: LastN = LEFT_OUT
    model: str | None = None
    lora: list[Any] | None = None


_BODY = Body(EmbeddingRequest)


class EmbeddingInputs(msgspec.Struct, frozen=True):
    """The options of a request."""

    is_openai: bool
    field: str  # the name of the field with the texts
    base64: bool
    takes_mean: bool  # whether each text gets the mean of its rows
    n_dimensions: int
    normalize: int  # as in --embd-normalize
    model: str
    adapters: Callable[[], Sequence[Use]]  # called when the texts are submitted


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /embedding and /embeddings."""
    _begin(served, exchange, is_openai=False)


def handle_openai(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/embeddings."""
    _begin(served, exchange, is_openai=True)


def _begin(served: ServedModel, exchange: Exchange, is_openai: bool) -> None:
    vector_job.embedding_ready(served)
    with_body(served.service, exchange, _BODY.decode, partial(_start, served, exchange, is_openai))


def _start(served: ServedModel, exchange: Exchange, is_openai: bool, request: EmbeddingRequest) -> None:
    model, embedder = served.embedder()
    given, options = _parse(served, exchange.request.key_name, embedder, request, is_openai)
    images = request.image_data
    inputs = shapes.split(given, options.field, served.settings.inputs_max, embedder.info, images)
    media = shapes.with_files(inputs)
    if images or media:
        vector_job.media_ready(served, embedder, media)
    counted = served.enter_preparing(exchange) if media else None
    work = _answer(served, exchange, model, embedder, options, inputs, counted)
    served.service.spawn(exchange, work, counted)


def _parse(
    served: ServedModel, key: str, embedder: Embedder, request: EmbeddingRequest, is_openai: bool
) -> tuple[str | list[Any] | dict[str, Any], EmbeddingInputs]:
    """Return the texts and the options."""
    field, given = "input", request.input
    if given is None:
        field, given = "content", request.content
    if given is None:
        raise bad('"input" or "content" must be provided')
    # Clients that send the older field expect the older response.
    is_openai = is_openai and field == "input"
    info = embedder.info
    # A chat model has a row per token, but OpenAI's format has one vector per text.
    takes_mean = is_openai and info.is_pooling_open
    if is_openai and info.pooling == "none" and not takes_mean:
        raise ApiError(
            400,
            "Pooling type 'none' is not OAI compatible: use /embeddings, or start llamad with another --pooling",
        )
    n_dimensions = info.n_out if request.dimensions == LEFT_OUT else request.dimensions
    if n_dimensions > info.n_out:
        raise bad(f'"dimensions" must be at most {info.n_out}, the size of this model\'s vectors')
    normalize = request.embd_normalize
    if normalize == LEFT_OUT:
        normalize = served.settings.embd_normalize
    scales = None if request.lora is None else adapter_scales(request.lora)
    adapters = partial(vector_job.adapters_for, served, key, request.model, scales)
    adapters()  # a wrong name is refused before anything is tokenized
    return given, EmbeddingInputs(
        is_openai=is_openai,
        field=field,
        base64=request.encoding_format == "base64",
        takes_mean=takes_mean,
        n_dimensions=n_dimensions,
        normalize=-1 if info.pooling == "none" and not takes_mean else normalize,
        model=served.name if request.model is None else request.model,
        adapters=adapters,
    )


async def _answer(
    served: ServedModel,
    exchange: Exchange,
    model: Model,
    embedder: Embedder,
    options: EmbeddingInputs,
    inputs: list[Any],
    counted: Place | None,
) -> None:
    for prompt in shapes.with_files(inputs).values():
        prompt.encode(await served.encode_media(exchange.request, prompt.files))
    texts = await vector_job.in_worker(
        served,
        exchange,
        shapes.n_chars(inputs),
        vector_job.CHARS_INLINE_MAX,
        lambda: shapes.tokenize(inputs, options.field, model, embedder.info),
    )
    media = await vector_job.lent(served, shapes.with_files(inputs))
    inputs.clear()  # the files of the inputs may be large
    if counted is not None:
        counted.close()
    rows = await vector_job.rows_of(served, exchange, model, embedder, texts, media, options.adapters)
    body = await vector_job.in_worker(
        served,
        exchange,
        sum(one.size for one in rows),
        vector_job.FLOATS_INLINE_MAX,
        lambda: _render(options, rows, vector_job.usage(texts)),
    )
    exchange.send(Response(200, body))


def _render(options: EmbeddingInputs, rows: list[Embeddings], usage: dict[str, int]) -> bytes:
    """Return the response as JSON. Each vector is encoded separately, because a Python object per number would take
    most of the time."""
    data: list[dict[str, Any]] = []
    for index, one in enumerate(rows):
        if options.takes_mean:
            one = one.mean(axis=0, keepdims=True, dtype="float64").astype("float32")
        one = float_text.normalize(one[:, : options.n_dimensions], options.normalize)
        vectors = [
            msgspec.Raw(
                b'"' + float_text.to_base64(row) + b'"' if options.base64 else float_text.to_json(row)
            )
            for row in one
        ]
        if options.is_openai:
            item: dict[str, Any] = {"object": "embedding", "index": index, "embedding": vectors[0]}
            if options.base64:
                item["encoding_format"] = "base64"
        else:
            item = {"index": index, "embedding": vectors}
        data.append(item)
    if not options.is_openai:
        return _encode(data)
    return _encode({"model": options.model, "object": "list", "usage": usage, "data": data})
