"""POST /apply-template: renders a chat's messages to a prompt. Runs on the event loop."""

from __future__ import annotations

from functools import partial

import msgspec

from llamad.api.openai.chat_request import Chat, with_chat
from llamad.api.openai.request import ChatRequest
from llamad.api.service.body_reading import with_options
from llamad.api.service.served_model import ServedModel
from llamad.http.exchange import Exchange
from llamad.http.request import Response


def apply_template(served: ServedModel, exchange: Exchange) -> None:
    """POST /apply-template."""

    def send(chat: Chat) -> None:
        prompt = chat.prompt if chat.media is None else chat.media.shown(chat.prompt)
        exchange.send(Response(200, msgspec.json.encode({"prompt": prompt})))

    n_bytes = len(exchange.request.body)
    then = partial(with_chat, served, exchange, n_bytes=n_bytes, then=send)
    with_options(served, exchange, ChatRequest, then, needs_engine=False)
