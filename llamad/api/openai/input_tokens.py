"""The endpoints that only count a chat's tokens: POST /v1/chat/completions/input_tokens, the same for /v1/responses,
and the counting that Anthropic's endpoint shares.

Runs on the event loop; a worker tokenizes long prompts. A chat that is too long for the context is counted, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from llamad.api.openai.chat_request import Chat, with_chat
from llamad.api.openai.request import ChatRequest
from llamad.api.openai.responses_reading import ReadRequest, with_request
from llamad.api.request import prompt as prompts
from llamad.api.request.media import MediaPrompt
from llamad.api.request.prompt import Built, Prompt
from llamad.api.service.body_reading import with_options
from llamad.api.service.served_model import ServedModel
from llamad.api.service.waking import until_awake
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.protocol.model_info import Model

_OPENAI: dict[str, Any] = {"object": "response.input_tokens"}


def of_chat(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/chat/completions/input_tokens."""
    n_bytes = len(exchange.request.body)

    def then(request: ChatRequest) -> None:
        count(served, exchange, request, n_bytes, **_OPENAI)

    with_options(served, exchange, ChatRequest, then, needs_engine=False)


def of_response(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/responses/input_tokens."""
    served.described_text()

    def then(read: ReadRequest) -> None:
        count(served, exchange, read.request, read.n_bytes, **_OPENAI)

    with_request(served, exchange, then, only_counts=True)


def count(
    served: ServedModel,
    exchange: Exchange,
    request: ChatRequest,
    n_bytes: int,
    scale: Callable[[int], int] = int,
    **more: Any,
) -> None:
    """Send a response with the number of tokens, as `scale` reports it, and the fields of `more`."""

    def count_chat(chat: Chat) -> None:
        model, system = served.described_text(), served.key_states.system(exchange.request.key_name)
        if chat.media is not None:
            counted = served.enter_preparing(exchange)
            served.service.spawn(exchange, with_files(chat.media_prompt(chat.media)), counted)
            return
        work = partial(_counted, model, system.tokens, chat.sent, scale, more)
        if len(chat.prompt) <= prompts.TEXT_INLINE_MAX:
            _send(exchange, request, work())
        else:
            served.service.spawn(exchange, later(len(chat.prompt), work))

    async def later(n_chars: int, work: Any) -> None:
        body = await served.count_text(exchange.request, n_chars, work)
        _send(exchange, request, body)

    async def with_files(prompt: MediaPrompt) -> None:
        await until_awake(served, exchange)  # the projector is loaded together with the engine
        model, _ = served.ready()
        prompt.encode(await served.encode_media(exchange.request, prompt.files))
        system = served.key_states.system(exchange.request.key_name)
        work = partial(prompt.tokens, model, system.tokens)
        tokens = await served.service.texts.run(served.service.client(exchange.request), prompt.n_chars, work)
        _send(exchange, request, msgspec.json.encode({"input_tokens": scale(len(tokens) // 4), **more}))

    with_chat(served, exchange, request, n_bytes, count_chat)


def _send(exchange: Exchange, request: ChatRequest, body: bytes) -> None:
    headers = request.left_out.headers(exchange.request.request_id)
    exchange.send(Response(200, body, headers=headers))


def _counted(
    model: Model, system: bytes, prompt: Prompt | Built, scale: Callable[[int], int], more: dict[str, Any]
) -> bytes:
    """Return the response about a prompt that follows the tokens of the system prompt."""
    if isinstance(prompt, Built):
        tokens = prompt.tokens(model, system)
    else:
        assert isinstance(prompt, str)
        tokens = system + model.vocab.tokenize(prompt.encode("utf-8", "replace"), not system, True)
    return msgspec.json.encode({"input_tokens": scale(len(tokens) // 4), **more})
