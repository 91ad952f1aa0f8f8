"""POST /v1/audio/transcriptions and the format of its responses, streamed and complete.

Runs on the event loop. transcription_request.py reads the form; from then on it is a chat about a sound.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.dialect import Dialect
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.generate.stream_event import write_event
from llamad.api.openai import objects
from llamad.api.openai.chat_request import Chat, settle_chat, start, with_chat
from llamad.api.openai.transcription_request import Transcription, read
from llamad.api.request.errors import ApiError
from llamad.api.service.body_reading import with_body
from llamad.api.service.served_model import ServedModel
from llamad.client.text_event import TextEvent
from llamad.http.exchange import Exchange
from llamad.protocol.row_ids import without_rows

PLAIN_TEXT = "text/plain; charset=utf-8"
_LOGPROB = ("token", "bytes", "logprob", "prob")
_encode = msgspec.json.Encoder().encode


class TranscriptDialect(Dialect[Job, CompletionPart]):
    """The dialect of a transcription. Events and bodies contain the text, and at the end its usage. Reasoning is left
    out."""

    def __init__(self, chat: Chat, is_text: bool) -> None:
        self.chat = chat
        self.id = objects.new_id("transcript-")
        self._is_text = is_text
        self._parser = chat.parser()
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._n_sent = 0  # the number of logprobs that were sent

    def _take(self, data: bytes | None) -> str:
        """Return the text that these bytes add, or that the end of the output adds."""
        parser = self._parser
        deltas = parser.finish() if data is None else parser.feed(data.decode("utf-8", "replace"))
        text = "".join(delta.text for delta in deltas if delta.kind == "content")
        self._texts.append(text)
        return text

    def _remember(self, part: CompletionPart, piece: TextEvent) -> None:
        if self.chat.logprobs:
            job = part.job
            entries = objects.chat_logprobs(job.model.vocab, piece, 0, job.generation.post_sampling_probs)
            self._logprobs += [
                {name: value for name, value in one.items() if name in _LOGPROB} for one in entries
            ]

    def _delta(self, text: str) -> bytes:
        if not text:
            return b""
        event: dict[str, Any] = {"type": "transcript.text.delta", "delta": text}
        if self.chat.logprobs:
            event["logprobs"], self._n_sent = self._logprobs[self._n_sent :], len(self._logprobs)
        return write_event(event)

    def _done(self, part: CompletionPart) -> dict[str, Any]:
        """Return the last event, which is also the whole response."""
        n_prompt, n_out = part.ended.n_prompt, part.ended.n_decoded
        n_text = len(without_rows(part.tokens_prompt)) // 4
        event: dict[str, Any] = {
            "type": "transcript.text.done",
            "text": "".join(self._texts),
            "usage": {
                "type": "tokens",
                "input_tokens": n_prompt,
                "output_tokens": n_out,
                "total_tokens": n_prompt + n_out,
                "input_tokens_details": {"cached_tokens": part.ended.n_cached},
                "input_token_details": {"audio_tokens": n_prompt - n_text, "text_tokens": n_text},
            },
        }
        if self.chat.logprobs:
            event["logprobs"] = self._logprobs
        return event

    # Called by the job.

    def piece(self, part: CompletionPart, piece: TextEvent) -> bytes:
        self._remember(part, piece)
        return self._delta(self._take(piece.data))

    def progress(self, part: CompletionPart, fields: dict[str, Any]) -> bytes:
        return write_event({"type": "transcript.text.delta", "delta": "", **fields})

    def done(self, part: CompletionPart) -> bytes:
        return self._delta(self._take(None)) + write_event(self._done(part))

    def whole(self, job: Job) -> bytes:
        part = job.parts[0]
        for piece in part.pieces:
            self._remember(part, piece)
        self._take(part.data())
        self._take(None)
        if self._is_text:
            return "".join(self._texts).encode("utf-8", "replace") + b"\n"
        return _encode(completion_json.select(self._done(part), job.generation.response_fields))


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/audio/transcriptions and /audio/transcriptions."""
    served.ready()
    if served.media is None or not served.media.hears:
        raise ApiError(
            501,
            "This model does not support audio input: start the server with --mmproj FILE, a projector"
            " that reads sound",
        )
    content_type = exchange.request.headers.get("content-type", "")
    with_body(
        served.service, exchange, partial(read, served, content_type), partial(_start, served, exchange), len
    )


def _start(served: ServedModel, exchange: Exchange, form: Transcription) -> None:
    model, engine = served.ready()
    request = form.request

    def submit(chat: Chat) -> None:
        constraint = settle_chat(chat, request, served)
        dialect = TranscriptDialect(chat, form.is_text)
        job = Job(served, exchange, request, constraint, model, engine, dialect, id=dialect.id, markers=True)
        if form.is_text:
            job.content_type = PLAIN_TEXT
        start(chat, job)

    with_chat(served, exchange, request, form.n_chars, submit, form.media)
