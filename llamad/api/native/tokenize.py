"""POST /tokenize and POST /detokenize.

Native threads tokenize short texts. A worker tokenizes long ones, because their JSON takes time, too. Token ids are
checked before llama.cpp sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from llamad.api.request import prompt as prompts
from llamad.api.request.body import Body
from llamad.api.request.errors import ApiError, bad
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.protocol.model_info import Model
from llamad.tokenizer import token_ids
from llamad.tokenizer.piece_json import TooLarge, pieces_json

# The most characters or tokens whose JSON is encoded on the event loop; a millisecond at most.
SHORT_MAX = 16384


class TokenizeRequest(Struct):
    content: Annotated[str | list[Any], Meta(description="a string, or an array of strings and token ids")]
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(Struct):
    tokens: Annotated[list[Any], Meta(description="an array of token ids")] = field(default_factory=list)


_TOKENIZE, _DETOKENIZE = Body(TokenizeRequest), Body(DetokenizeRequest)


def tokenize(served: ServedModel, exchange: Exchange) -> None:
    """POST /tokenize."""
    served.described()
    with_body(served.service, exchange, _TOKENIZE.decode, partial(_tokenize, served, exchange))


def _tokenize(served: ServedModel, exchange: Exchange, request: TokenizeRequest) -> None:
    model, sent = served.described(), request.content
    n_chars = prompts.n_chars([sent])
    if n_chars > SHORT_MAX or isinstance(sent, list):
        work = partial(_tokens_json, model, request, served.settings.answer_max_bytes)
        served.service.spawn(exchange, _in_worker(served, exchange, n_chars, work))
        return
    content = sent.encode("utf-8", "replace")
    send = partial(_send_tokens, served, exchange, model, request.with_pieces)
    served.tokenizing().submit(content, request.add_special, request.parse_special, send)


def _send_tokens(
    served: ServedModel, exchange: Exchange, model: Model, with_pieces: bool, tokens: bytes | None
) -> None:
    try:
        if tokens is None:
            raise ApiError(500, "The text could not be tokenized")
        body = _ids_json(model, tokens, with_pieces, served.settings.answer_max_bytes)
    except ApiError as error:
        exchange.send(error.response())
    else:
        exchange.send(Response(200, body))


def _tokens_json(model: Model, request: TokenizeRequest, bytes_max: int) -> bytes:
    sent, parts = request.content, []
    for i, one in enumerate([sent] if isinstance(sent, str) else sent):
        if isinstance(one, str):
            text = one.encode("utf-8", "replace")
            parts.append(model.vocab.tokenize(text, request.add_special and i == 0, request.parse_special))
            continue
        packed = token_ids.pack([one], model.vocab.n_vocab)
        if packed is None:
            raise bad('"content": an array may hold strings and token ids of the vocabulary only')
        parts.append(packed)
    return _ids_json(model, b"".join(parts), request.with_pieces, bytes_max)


def _ids_json(model: Model, tokens: bytes, with_pieces: bool, bytes_max: int) -> bytes:
    try:
        if with_pieces:
            return pieces_json(model.vocab, tokens, bytes_max)
        body = b'{"tokens":%b}' % token_ids.to_json(tokens)
        if len(body) > bytes_max:
            raise TooLarge
    except TooLarge:
        raise bad(
            f"The response would be larger than {bytes_max} bytes (--answer-max-bytes); send the text in parts"
        ) from None
    return body


def detokenize(served: ServedModel, exchange: Exchange) -> None:
    """POST /detokenize."""
    served.described()
    with_body(served.service, exchange, _DETOKENIZE.decode, partial(_detokenize, served, exchange))


def _detokenize(served: ServedModel, exchange: Exchange, request: DetokenizeRequest) -> None:
    model = served.described()
    tokens = request.tokens
    packed = token_ids.pack(tokens, model.vocab.n_vocab)
    if packed is None:
        raise _wrong_ids(tokens, model.vocab.n_vocab)
    if len(tokens) <= SHORT_MAX:
        exchange.send(Response(200, _text_json(model, packed)))
        return
    served.service.spawn(
        exchange, _in_worker(served, exchange, len(tokens), partial(_text_json, model, packed))
    )


def _wrong_ids(tokens: list[Any], n_vocab: int) -> ApiError:
    if not set(map(type, tokens)) <= {int}:
        return bad('"tokens" must be an array of token ids')
    token = min(tokens) if min(tokens) < 0 else max(tokens)
    return bad(f'"tokens": token id {token} is outside the vocabulary of {n_vocab}')


def _text_json(model: Model, packed: bytes) -> bytes:
    return msgspec.json.encode({"content": model.vocab.pieces_of(packed).decode("utf-8", "replace")})


async def _in_worker(served: ServedModel, exchange: Exchange, size: int, work: Callable[[], bytes]) -> None:
    exchange.send(Response(200, await served.count_text(exchange.request, size, work)))
