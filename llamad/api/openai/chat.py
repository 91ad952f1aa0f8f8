"""POST /v1/chat/completions and the format of its responses, streamed and complete.

Runs on the event loop. chat_request.py reads the request, job.py runs it, and chat/parsing finds reasoning and tool
calls in the text.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.completion_result import piece_timings
from llamad.api.generate.dialect import Dialect
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.generate.stream_event import TextFrame
from llamad.api.openai import objects
from llamad.api.openai.chat_request import Chat, settle_chat, start, with_chat
from llamad.api.openai.request import ChatRequest
from llamad.api.service.body_reading import with_options
from llamad.api.service.served_model import ServedModel
from llamad.chat.parsing import Delta
from llamad.client.text_event import TextEvent
from llamad.http import sse
from llamad.http.exchange import Exchange

_encode = msgspec.json.Encoder().encode


class ChatMessage:
    """The answer of one part so far: the parser of its text, and what the parser has returned."""

    __slots__ = (
        "calls",
        "chat",
        "content",
        "echo",
        "frame",
        "logprobs",
        "parser",
        "reasoning",
        "role_sent",
        "tokens",
    )

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.parser = chat.parser()
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.logprobs: list[dict[str, Any]] = []  # not sent yet
        self.tokens: list[int] = []  # not sent yet; only if the request asks for them
        self.role_sent = False
        self.frame: TextFrame | None = None  # the frame of events that have only content
        self.echo = list(chat.echo)  # the message that is continued; not sent yet

    def take(self, deltas: list[Delta]) -> list[dict[str, Any]]:
        """Return the deltas in OpenAI's format; also collect the complete message."""
        out: list[dict[str, Any]] = []
        for delta in deltas:
            if delta.kind == "content":
                self.content.append(delta.text)
                out.append({"content": delta.text})
            elif delta.kind == "reasoning":
                self.reasoning.append(delta.text)
                out.append({"reasoning_content": delta.text})
            elif delta.kind == "tool_begin":
                function = {"name": delta.name, "arguments": ""}
                call = {"id": self.chat.call_id(delta), "type": "function", "function": function}
                self.calls.append(call)
                out.append({"tool_calls": [{"index": delta.index, **call, "function": dict(function)}]})
            else:
                self.calls[delta.index]["function"]["arguments"] += delta.text
                arguments = {"arguments": delta.text}
                out.append({"tool_calls": [{"index": delta.index, "function": arguments}]})
        return out

    def take_echo(self) -> list[dict[str, Any]]:
        deltas, self.echo = self.echo, []
        return self.take(deltas)

    def has_whole_calls(self) -> bool:
        """Return whether there are calls, and a client can make all of them."""
        return bool(self.calls) and all(objects.is_whole(one["function"]["arguments"]) for one in self.calls)

    def message(self) -> dict[str, Any]:
        content = "".join(self.content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content if content or not self.calls else None,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


class ChatDialect(Dialect[Job, CompletionPart]):
    """The dialect of one request: its id, and what it returns besides the text."""

    def __init__(self, chat: Chat, served: ServedModel) -> None:
        self.chat = chat
        self.id = objects.new_id("chatcmpl-")
        self.created = int(time.time())
        self.fingerprint = served.service.build_info
        self._opening: bytes | None = None

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.chat.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _answer(self, part: CompletionPart) -> ChatMessage:
        if not isinstance(part.state, ChatMessage):
            part.state = ChatMessage(self.chat)
        return part.state

    def _reason(self, part: CompletionPart, answer: ChatMessage) -> str:
        reason = objects.finish_reason(part)
        part.has_calls = answer.has_whole_calls()
        return "tool_calls" if reason == "stop" and part.has_calls else reason

    def _remember(self, part: CompletionPart, piece: TextEvent) -> None:
        job = part.job
        if job.generation.return_tokens:
            self._answer(part).tokens += piece.tokens
        if self.chat.logprobs:
            is_post = job.generation.post_sampling_probs
            entries = objects.chat_logprobs(job.model.vocab, piece, self.chat.n_top, is_post)
            self._answer(part).logprobs += entries

    def _chunk(self, part: CompletionPart, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        answer = self._answer(part)
        choice: dict[str, Any] = {"index": part.index, "delta": delta, "finish_reason": reason}
        if self.chat.logprobs:
            choice["logprobs"] = {"content": answer.logprobs} if answer.logprobs else None
            answer.logprobs = []
        if part.job.generation.return_tokens:
            choice["tokens"], answer.tokens = answer.tokens, []
        return self._envelope("chat.completion.chunk", [choice])

    def _begin(self, part: CompletionPart) -> bytes:
        """Return the events before the first piece; there are none if they were sent already."""
        answer = self._answer(part)
        out = b"" if answer.role_sent else objects.event(part.job, self._role_chunk(part))
        for delta in answer.take_echo():
            out += objects.event(part.job, self._chunk(part, delta, None))
        return out

    def _role_chunk(self, part: CompletionPart) -> dict[str, Any]:
        self._answer(part).role_sent = True
        choice = {"index": part.index, "delta": {"role": "assistant", "content": None}, "finish_reason": None}
        return self._envelope("chat.completion.chunk", [choice])

    def _content_frame(self, part: CompletionPart) -> TextFrame:
        """Return the frame of _chunk() for events that have only content. These are the most frequent events, and only
        their text differs."""
        if self._opening is None:
            self._opening = _encode(self._envelope("chat.completion.chunk", []))[:-2]
        before = b'%b{"index":%d,"delta":{"content":' % (self._opening, part.index)
        return TextFrame(before, b'},"finish_reason":null}]}')

    # Called by the job.

    def piece(self, part: CompletionPart, piece: TextEvent) -> bytes:
        answer = self._answer(part)
        g = part.job.generation
        deltas = answer.parser.feed(piece.data.decode("utf-8", "replace"))
        is_bare = not (
            answer.echo or self.chat.logprobs or g.return_tokens or g.timings_per_token or g.response_fields
        )
        if is_bare and answer.role_sent and len(deltas) == 1 and deltas[0].kind == "content":
            text = deltas[0].text
            answer.content.append(text)
            if answer.frame is None:
                answer.frame = self._content_frame(part)
            return answer.frame.of_text(text)
        out = self._begin(part)
        self._remember(part, piece)
        for delta in answer.take(deltas):
            out += objects.event(part.job, self._chunk(part, delta, None) | piece_timings(part, piece))
        return out

    def progress(self, part: CompletionPart, fields: dict[str, Any]) -> bytes:
        return objects.event(part.job, self._role_chunk(part) | fields)

    def done(self, part: CompletionPart) -> bytes:
        answer = self._answer(part)
        out = self._begin(part)
        for delta in answer.take(answer.parser.finish()):
            out += objects.event(part.job, self._chunk(part, delta, None))
        last = self._chunk(part, {}, self._reason(part, answer)) | objects.ending(part)
        return out + objects.event(part.job, last)

    def end(self, job: Job) -> bytes:
        if not self.chat.include_usage:
            return sse.DONE
        event = self._envelope("chat.completion.chunk", []) | objects.usage_ending(job)
        return objects.event(job, event) + sse.DONE

    def whole(self, job: Job) -> bytes:
        choices = []
        for part in job.parts:
            answer = self._answer(part)
            answer.take_echo()
            answer.take(answer.parser.feed(part.data().decode("utf-8", "replace")))
            answer.take(answer.parser.finish())
            for piece in part.pieces:
                self._remember(part, piece)
            choice = {
                "index": part.index,
                "message": answer.message(),
                "logprobs": {"content": answer.logprobs} if self.chat.logprobs else None,
                "finish_reason": self._reason(part, answer),
            }
            if job.generation.return_tokens:
                choice["tokens"] = answer.tokens
            choices.append(choice)
        whole = self._envelope("chat.completion", choices) | {"usage": objects.usage(job)}
        whole |= objects.ending(job.parts[0])
        return _encode(completion_json.select(whole, job.generation.response_fields))


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/chat/completions and /chat/completions."""
    n_bytes = len(exchange.request.body)
    with_options(served, exchange, ChatRequest, partial(_start, served, exchange, n_bytes))


def _start(served: ServedModel, exchange: Exchange, n_bytes: int, request: ChatRequest) -> None:
    model, engine = served.ready()

    def submit(chat: Chat) -> None:
        constraint = settle_chat(chat, request, served)
        dialect = ChatDialect(chat, served)
        job = Job(served, exchange, request, constraint, model, engine, dialect, id=dialect.id, markers=True)
        job.memory.keep_only(chat.kept_bytes(exchange.n_decoded))
        start(chat, job)

    with_chat(served, exchange, request, n_bytes, submit)
