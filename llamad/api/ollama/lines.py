"""The format of responses of /api/chat and /api/generate: one object, or a stream of objects, each in its line.

Runs on the event loop. Must not know how a request is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from llamad.api.generate.dialect import Dialect
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.openai import objects
from llamad.api.openai.chat_request import Chat
from llamad.api.request.errors import ApiError
from llamad.api.request.ignored_fields import LeftOut
from llamad.api.service.error_dialects import ollama_body, ollama_response
from llamad.base.clock import clock_us
from llamad.chat.parsing import Delta, OutputParser, PlainParser
from llamad.client.text_event import TextEvent
from llamad.http.exchange import Exchange
from llamad.http.request import JSON, Response
from llamad.protocol.row_ids import without_rows

NDJSON = "application/x-ndjson"

_encode = msgspec.json.Encoder().encode


def stamp(seconds: float | None = None) -> str:
    """Return a time, or the current one, as Ollama writes it."""
    time = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Call:
    """A tool call whose arguments are still arriving."""

    __slots__ = ("arguments", "id", "index", "name")

    def __init__(self, delta: Delta, id: str) -> None:
        self.index, self.name, self.id = delta.index, delta.name, id
        self.arguments = ""

    def fragment(self) -> dict[str, Any]:
        """Return the call, or its text if it was cut off before its end."""
        try:
            arguments = msgspec.json.decode(self.arguments or "{}")
        except msgspec.DecodeError:
            arguments = None
        if not isinstance(arguments, dict):
            return {"content": self.name + self.arguments}
        function = {"index": self.index, "name": self.name, "arguments": arguments}
        return {"content": "", "tool_calls": [{"id": self.id, "function": function}]}


class Output:
    """The output of one part so far: its parser, the call that is arriving, and what has not been sent yet."""

    __slots__ = ("_call", "_chat", "logprobs", "n_calls", "parser", "tokens")

    def __init__(self, chat: Chat | None) -> None:
        self._chat = chat
        self.parser: OutputParser = PlainParser() if chat is None else chat.parser()
        self._call: Call | None = None
        self.n_calls = 0
        self.tokens: list[int] = []
        self.logprobs: list[dict[str, Any]] = []

    def feed(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield fragments of a message, with `content`, `thinking` or `tool_calls`."""
        return self._fragments(self.parser.feed(text))

    def finish(self) -> Iterator[dict[str, Any]]:
        yield from self._fragments(self.parser.finish())
        yield from self._end_call()

    def _fragments(self, deltas: list[Delta]) -> Iterator[dict[str, Any]]:
        for delta in deltas:
            if delta.kind == "content":
                yield from self._end_call()
                yield {"content": delta.text}
            elif delta.kind == "reasoning":
                yield from self._end_call()
                yield {"content": "", "thinking": delta.text}
            elif delta.kind == "tool_begin":
                yield from self._end_call()
                assert self._chat is not None
                self._call = Call(delta, self._chat.call_id(delta))
            elif self._call is not None:
                self._call.arguments += delta.text

    def _end_call(self) -> Iterator[dict[str, Any]]:
        if self._call is not None:
            fragment, self._call = self._call.fragment(), None
            self.n_calls += "tool_calls" in fragment
            yield fragment


class Lines(Dialect[Job, CompletionPart]):
    """The dialect of one request to /api/chat. `chat` is None for a prompt without a template."""

    content_type = NDJSON

    def __init__(self, exchange: Exchange, name: str, chat: Chat | None, n_top: int = -1) -> None:
        self.name = name
        self.chat = chat
        self.n_top = n_top  # -1: no logprobs
        self.t_start = exchange.request.t_start

    def _output(self, part: CompletionPart) -> Output:
        if not isinstance(part.state, Output):
            part.state = Output(self.chat)
        return part.state

    def message(self, fragment: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an object for a fragment of the message, or for all of it."""
        return {"message": {"role": "assistant", **fragment}}

    def last(self, part: CompletionPart) -> dict[str, Any]:
        """Return the fields that only the last object has."""
        return {}

    def _object(self, fragment: dict[str, Any], *, done: bool = False) -> dict[str, Any]:
        return {"model": self.name, "created_at": stamp(), **self.message(fragment), "done": done}

    def _line(self, output: Output, fragment: dict[str, Any]) -> bytes:
        line = self._object(fragment)
        if output.logprobs:
            line["logprobs"], output.logprobs = output.logprobs, []
        return bytes(_encode(line)) + b"\n"

    def _remember(self, part: CompletionPart, piece: TextEvent) -> None:
        output = self._output(part)
        output.tokens += piece.tokens
        if self.n_top >= 0:
            output.logprobs += objects.chat_logprobs(part.job.model.vocab, piece, self.n_top, False)

    def _ending(self, part: CompletionPart) -> dict[str, Any]:
        """Return why the text ended, its counts, and times in nanoseconds."""
        job, done, output = part.job, part.ended, self._output(part)
        part.has_calls = output.n_calls > 0
        before_us = max(0, round((time.monotonic() - self.t_start) * 1e6) - (clock_us() - job.t_submit_us))
        return {
            "done_reason": objects.finish_reason(part),
            **self.last(part),
            "total_duration": round((time.monotonic() - self.t_start) * 1e9),
            "load_duration": before_us * 1000,
            "prompt_eval_count": done.n_prompt,
            "prompt_eval_duration": done.prompt_us * 1000,
            "eval_count": done.n_decoded,
            "eval_duration": done.predict_us * 1000,
        }

    # Called by the job.

    def piece(self, part: CompletionPart, piece: TextEvent) -> bytes:
        self._remember(part, piece)
        output = self._output(part)
        return b"".join(
            [self._line(output, one) for one in output.feed(piece.data.decode("utf-8", "replace"))]
        )

    def ping(self, job: Job) -> bytes:
        """A line without text: unlike server-sent events, lines have no comments."""
        return bytes(_encode(self._object({"content": ""}))) + b"\n"

    def progress(self, part: CompletionPart, fields: dict[str, Any]) -> bytes:
        return b""

    def done(self, part: CompletionPart) -> bytes:
        output = self._output(part)
        out = b"".join([self._line(output, one) for one in output.finish()])
        last = self._object({"content": ""}, done=True) | self._ending(part)
        if output.logprobs:
            last["logprobs"] = output.logprobs
        return out + bytes(_encode(last)) + b"\n"

    def end(self, job: Job) -> bytes:
        return b""

    def whole(self, job: Job) -> bytes:
        part = job.parts[0]
        output = self._output(part)
        for piece in part.pieces:
            self._remember(part, piece)
        fragments = [*output.feed(part.data().decode("utf-8", "replace")), *output.finish()]
        message: dict[str, Any] = {"content": "".join(one["content"] for one in fragments)}
        thinking = "".join(one.get("thinking", "") for one in fragments)
        if thinking:
            message["thinking"] = thinking
        calls = [call for one in fragments for call in one.get("tool_calls", ())]
        if calls:
            message["tool_calls"] = calls
        whole = self._object(message, done=True) | self._ending(part)
        if output.logprobs:
            whole["logprobs"] = output.logprobs
        return bytes(_encode(whole))

    def failed(self, error: ApiError) -> bytes:
        return ollama_body(error) + b"\n"

    def refused(self, error: ApiError) -> Response:
        return ollama_response(error)


class TextLines(Lines):
    """The dialect of one request to /api/generate. With `tells_context` the last object has the tokens of the whole
    conversation, with which the next request can continue it."""

    def __init__(
        self,
        exchange: Exchange,
        name: str,
        chat: Chat | None,
        n_top: int = -1,
        *,
        tells_context: bool = False,
    ) -> None:
        super().__init__(exchange, name, chat, n_top)
        self.tells_context = tells_context

    def message(self, fragment: dict[str, Any]) -> dict[str, Any]:
        return {"response": fragment["content"], **{k: v for k, v in fragment.items() if k != "content"}}

    def last(self, part: CompletionPart) -> dict[str, Any]:
        ready = part.job.ready
        if not self.tells_context or ready is None or any(ready.rows):
            return {}
        prompt = without_rows(part.tokens_prompt)[len(ready.system.tokens) :]
        return {"context": [*memoryview(prompt).cast("i"), *self._output(part).tokens]}


def no_text(lines: Lines, reason: str, exchange: Exchange, left_out: LeftOut, *, streams: bool) -> None:
    """Respond to a request that only loads or unloads a model."""
    data = bytes(_encode(lines._object({"content": ""}, done=True) | {"done_reason": reason}))
    headers = left_out.headers(exchange.request.request_id)
    content_type = NDJSON if streams else JSON
    exchange.send(Response(200, data + b"\n" if streams else data, content_type, headers))
