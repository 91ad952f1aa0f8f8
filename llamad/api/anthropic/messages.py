"""POST /v1/messages and POST /v1/messages/count_tokens, and the format of their responses.

Runs on the event loop. request.py reads the request; job.py runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from llamad.api.anthropic.blocks import ContentBlocks, event
from llamad.api.anthropic.request import MessagesRequest, Thinking, into_chat
from llamad.api.generate.completion_json import ended_timings
from llamad.api.generate.completion_result import piece_timings
from llamad.api.generate.dialect import Dialect
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.openai import objects
from llamad.api.openai.chat_request import Chat, settle_chat, start, with_chat
from llamad.api.openai.input_tokens import count
from llamad.api.request.errors import ApiError
from llamad.api.request.reported_context import Scale
from llamad.api.service.body_reading import with_body
from llamad.api.service.error_dialects import anthropic_body, anthropic_response
from llamad.api.service.served_model import ServedModel
from llamad.client.text_event import TextEvent
from llamad.http import sse
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.options.option import LEFT_OUT
from llamad.protocol.messages import STOP_LIMIT, STOP_WORD

# The limit of a request without "max_tokens", which Anthropic requires and llama-server does not. It applies unless -n
# is given.
MAX_TOKENS = 4096

_encode = msgspec.json.Encoder().encode


def _usage(scale: Callable[[int], int], n_prompt: int, n_cached: int, n_decoded: int) -> dict[str, int]:
    """Return the usage. Anthropic counts cached tokens separately from the rest of the input."""
    return {
        "input_tokens": scale(n_prompt) - scale(n_cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": scale(n_cached),
        "output_tokens": scale(n_decoded),
    }


class MessageDialect(Dialect[Job, CompletionPart]):
    """The dialect of one request: its id, how reasoning is shown, and the scale of its counts."""

    def __init__(
        self, chat: Chat, thinking: Thinking, request_id: str, scale: Callable[[int], int] = int
    ) -> None:
        self.chat = chat
        self.thinking = thinking
        self.request_id = request_id
        self.scale = scale
        self.id = objects.new_id("msg_")

    def _answer(self, part: CompletionPart) -> ContentBlocks:
        if not isinstance(part.state, ContentBlocks):
            part.state = ContentBlocks(self.chat, self.thinking)
        return part.state

    def _message(self, content: list[dict[str, Any]], usage: dict[str, int]) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.chat.model,
            "content": content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }

    def _stop(self, part: CompletionPart) -> dict[str, Any]:
        done, stops = part.ended, part.job.generation.stop
        answer = self._answer(part)
        part.has_calls = 0 < answer.n_calls == answer.n_whole_calls
        if done.stop_type == STOP_LIMIT:
            return {"stop_reason": "max_tokens", "stop_sequence": None}
        if part.has_calls:
            return {"stop_reason": "tool_use", "stop_sequence": None}
        if done.stop_type == STOP_WORD:
            return {"stop_reason": "stop_sequence", "stop_sequence": stops[done.stop_word]}
        return {"stop_reason": "end_turn", "stop_sequence": None}

    # Called by the job.

    def begin(self, job: Job) -> bytes:
        part = job.parts[0]
        message = self._message([], _usage(self.scale, part.n_prompt, part.n_cached, part.n_decoded))
        return event("message_start", message=message) + event("ping")

    def piece(self, part: CompletionPart, piece: TextEvent) -> bytes:
        answer = self._answer(part)
        answer.more = piece_timings(part, piece)
        return answer.take(answer.parser.feed(piece.data.decode("utf-8", "replace")))

    def progress(self, part: CompletionPart, fields: dict[str, Any]) -> bytes:
        return event("ping", **fields)

    def done(self, part: CompletionPart) -> bytes:
        answer = self._answer(part)
        out = answer.take(answer.parser.finish()) + answer.close()
        done = part.ended
        usage = _usage(self.scale, done.n_prompt, done.n_cached, done.n_decoded)
        more = {"timings": ended_timings(part.ended, part.miss)} if answer.more else {}
        return out + event("message_delta", delta=self._stop(part), usage=usage, **more)

    def end(self, job: Job) -> bytes:
        return event("message_stop")

    def whole(self, job: Job) -> bytes:
        part = job.parts[0]
        answer, done = self._answer(part), part.ended
        answer.take(answer.parser.feed(part.data().decode("utf-8", "replace")))
        answer.take(answer.parser.finish())
        answer.close()
        message = self._message(
            answer.blocks, _usage(self.scale, done.n_prompt, done.n_cached, done.n_decoded)
        )
        return _encode(message | self._stop(part))

    def failed(self, error: ApiError) -> bytes:
        return sse.format_event(anthropic_body(error, self.request_id), b"error")

    def refused(self, error: ApiError) -> Response:
        return anthropic_response(error, self.request_id)


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/messages."""
    served.ready()
    n_bytes = len(exchange.request.body)
    with_body(served.service, exchange, partial(_read, served), partial(_start, served, exchange, n_bytes))


def _read(served: ServedModel, body: bytes | memoryview) -> tuple[MessagesRequest, Thinking]:
    request = served.defaults.decode(MessagesRequest, body)
    if request.max_tokens == LEFT_OUT and request.n_predict < 0:
        request.n_predict = MAX_TOKENS
    return request, into_chat(request, served.settings)


def _start(
    served: ServedModel, exchange: Exchange, n_bytes: int, read: tuple[MessagesRequest, Thinking]
) -> None:
    model, engine = served.ready()
    request, thinking = read

    def submit(chat: Chat) -> None:
        constraint = settle_chat(chat, request, served)
        scale = Scale.of(served.settings, model)
        dialect = MessageDialect(chat, thinking, exchange.request.request_id, scale)
        job = Job(served, exchange, request, constraint, model, engine, dialect, id=dialect.id, markers=True)
        job.memory.keep_only(chat.kept_bytes(exchange.n_decoded))
        start(chat, job)

    with_chat(served, exchange, request, n_bytes, submit)


def count_tokens(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/messages/count_tokens; also counts a chat that is too long for the context."""
    scale = Scale.of(served.settings, served.described_text())
    n_bytes = len(exchange.request.body)
    with_body(
        served.service,
        exchange,
        partial(_read, served),
        lambda read: count(served, exchange, read[0], n_bytes, scale),
    )
