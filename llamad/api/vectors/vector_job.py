"""Runs a request for vectors: checks that the feature is on, lends the rows of images and sound to the engine, submits
the texts, watches the deadline and the client.

Runs on the event loop; long work goes to a worker. Must not format a response.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from llamad.api.generate import accounting
from llamad.api.request.errors import ApiError, engine_ended, queue_full, share_full
from llamad.api.request.media import MediaPrompt, refused
from llamad.api.service.adapters import adapters_of
from llamad.api.service.served_model import ServedModel
from llamad.client.adapters import Use
from llamad.client.embedding import Embedder, TextMedia
from llamad.http.exchange import Exchange
from llamad.protocol.errors import ComputeFailed, EngineEnded, Stopped
from llamad.protocol.model_info import Embeddings, Model

T = TypeVar("T")

# The most characters that are tokenized, and numbers that are encoded, on the event loop; about a millisecond.
CHARS_INLINE_MAX = 4096
FLOATS_INLINE_MAX = 16384
SCORES_INLINE_MAX = 1024


def embedding_ready(served: ServedModel) -> tuple[Model, Embedder]:
    """Return the model and its embedder. Raises a 501 if the server does not compute embeddings."""
    if not served.settings.wants_vectors:
        raise ApiError(501, "This server does not support embeddings. Start it with `--embeddings`")
    model, embedder = served.embedder()
    if embedder.info.pooling == "rank":
        raise ApiError(
            501,
            "This server does not support embeddings: its pooling is 'rank', which yields scores."
            " Start it with `--embeddings` and another pooling",
        )
    return model, embedder


def media_ready(served: ServedModel, embedder: Embedder, media: Mapping[int, MediaPrompt]) -> None:
    """Raise a 501 if images and sound cannot be embedded."""
    if served.media is None:
        file = next((file for one in media.values() for file in one.files), None)
        raise refused(file.field if file else "image_data", "sound" if file and file.is_sound else "images")
    if not embedder.info.n_mixed_max:
        raise ApiError(501, "Images and sound cannot be embedded: this model's attention is not causal")


async def lent(served: ServedModel, media: Mapping[int, MediaPrompt]) -> dict[int, TextMedia]:
    """Lend the rows of tokenized texts to the engine, and return them by the index of their text."""
    if not media:
        return {}
    engine = served.ready()[1]
    try:
        return {i: TextMedia(one.runs(), await engine.lend_rows(*one.rows())) for i, one in media.items()}
    except MemoryError:
        raise ApiError(503, "There is not enough memory for the images") from None
    except EngineEnded:
        raise served.not_ready() from None


def ranking_ready(served: ServedModel, what: str) -> tuple[Model, Embedder]:
    """Return the model and its embedder. Raises a 501 if the server does not compute scores; `what` is the feature of
    the endpoint."""
    off = ApiError(501, f"This server does not support {what}. Start it with `--reranking`")
    if not served.settings.wants_vectors:
        raise off
    model, embedder = served.embedder()
    if embedder.info.pooling != "rank":
        raise off
    if not embedder.info.has_head:
        raise ApiError(501, f"This server does not support {what}: the model has no classification head")
    return model, embedder


async def in_worker(
    served: ServedModel, exchange: Exchange, size: int, inline_max: int, work: Callable[[], T]
) -> T:
    """Run long work in a worker, and short work immediately."""
    if size <= inline_max:
        return work()
    return await served.service.texts.run(served.service.client(exchange.request), size, work)


def adapters_for(
    served: ServedModel, key: str, model: str | None, scales: Sequence[tuple[int, float]] | None
) -> tuple[Use, ...]:
    """Return the adapters that the texts of a key's request are computed with."""
    uses = adapters_of(served, key, model, scales)
    if any(use.info.invocation for use in uses):
        raise ApiError(501, "An activated adapter (aLoRA) acts in texts that are generated, not in vectors")
    return uses


async def rows_of(
    served: ServedModel,
    exchange: Exchange,
    model: Model,
    embedder: Embedder,
    texts: list[bytes],
    media: Mapping[int, TextMedia] | None = None,
    choose: Callable[[], Sequence[Use]] | None = None,
) -> list[Embeddings]:
    """Return the rows of each text, computed with the adapters that `choose` returns, or with those of its key. They
    are chosen only now, because another engine, without some of the adapters, may have started while the texts were
    tokenized for `model`. Raises ApiError, or CancelledError if the client has disconnected."""
    if exchange.closed:
        raise asyncio.CancelledError  # the client disconnected while its texts were tokenized
    adapters = choose() if choose is not None else adapters_for(served, exchange.request.key_name, None, None)
    adapter_ids = [use.info.id for use in adapters]
    exchange.details = partial(accounting.text_details, served, adapter_ids, texts)
    client = served.service.client(exchange.request)
    if not embedder.can_accept():
        raise queue_full()
    if not embedder.has_share(client):
        raise share_full()
    limit = served.settings.request_timeout
    left = exchange.request.t_start + limit - time.monotonic() if limit > 0 else None
    try:
        job = embedder.submit(texts, client, media, adapters, model.vocab)
    except EngineEnded:
        raise engine_ended() from None
    exchange.on_abort = job.abort
    try:
        async with asyncio.timeout(left):
            rows = await job.future
    except TimeoutError:
        raise ApiError(408, "The request exceeded --request-timeout") from None
    except EngineEnded:
        raise engine_ended(was_running=True) from None
    except Stopped:
        raise ApiError(503, "The server is shutting down") from None
    except ComputeFailed as error:
        raise ApiError(500, f"llama.cpp failed to compute the batch (code {error.code}); try again") from None
    finally:
        job.abort()  # does nothing to a job that has ended
    n_floats = sum(one.size for one in rows)
    if not await in_worker(served, exchange, n_floats, FLOATS_INLINE_MAX, lambda: _are_finite(rows)):
        raise ApiError(500, "The model returned values that are not finite")
    return rows


def _are_finite(rows: list[Embeddings]) -> bool:
    import numpy as np

    return all(bool(np.isfinite(one).all()) for one in rows)


def usage(texts: list[bytes]) -> dict[str, int]:
    n_tokens = sum(map(len, texts)) // 4
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
