"""Owns POST /tokenize and POST /detokenize.

Short texts on the event loop, long ones in a worker. Token ids are checked before llama.cpp sees them.
"""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import msgspec

from llamad.api.errors import bad
from llamad.api.fields import flag, json_object
from llamad.api.prompt import TEXT_INLINE_MAX
from llamad.api.service import Service
from llamad.engine.model import Model
from llamad.http.exchange import Exchange
from llamad.http.message import Response


def tokenize(service: Service, exchange: Exchange) -> None:
    """POST /tokenize."""
    model = service.loaded()
    body = json_object(exchange.request.body)
    content = body.get("content")
    if content is not None and not isinstance(content, str):
        raise bad('"content" must be a string')
    wants = (
        flag(body, "add_special", False),
        flag(body, "parse_special", True),
        flag(body, "with_pieces", False),
    )
    content = content or ""
    if len(content) <= TEXT_INLINE_MAX:
        exchange.send(Response(200, _tokens_json(model, content, *wants)))
        return
    service.spawn(exchange, _in_worker(service, exchange, _tokens_json, model, content, *wants))


def _tokens_json(
    model: Model, content: str, add_special: bool, parse_special: bool, with_pieces: bool
) -> bytes:
    found = model.vocab.tokenize(content.encode("utf-8", "replace"), add_special, parse_special)
    tokens: list[Any] = memoryview(found).cast("i").tolist()
    if with_pieces:
        tokens = [{"id": token, "piece": _piece(model.vocab.piece(token, True))} for token in tokens]
    return msgspec.json.encode({"tokens": tokens})


def _piece(data: bytes) -> str | list[int]:
    """A string where the bytes are one, else the bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def detokenize(service: Service, exchange: Exchange) -> None:
    """POST /detokenize."""
    model = service.loaded()
    body = json_object(exchange.request.body)
    tokens = body.get("tokens")
    if tokens is None:
        tokens = []
    if not isinstance(tokens, list) or not set(map(type, tokens)) <= {int}:
        raise bad('"tokens" must be an array of token ids')
    for token in (min(tokens, default=0), max(tokens, default=0)):
        if not 0 <= token < model.vocab.n_vocab:
            raise bad(f'"tokens": token id {token} is outside the vocabulary of {model.vocab.n_vocab}')
    packed = array("i", tokens).tobytes()
    if len(tokens) <= TEXT_INLINE_MAX:
        exchange.send(Response(200, _text_json(model, packed)))
        return
    service.spawn(exchange, _in_worker(service, exchange, _text_json, model, packed))


def _text_json(model: Model, packed: bytes) -> bytes:
    return msgspec.json.encode({"content": model.vocab.detokenize(packed, True).decode("utf-8", "replace")})


async def _in_worker(service: Service, exchange: Exchange, work: Any, *args: object) -> None:
    answer = await asyncio.get_running_loop().run_in_executor(service.workers, work, *args)
    exchange.send(Response(200, answer))
