"""/v1/responses and the format of its responses, complete or as named events.

Runs on the event loop. responses_reading.py reads the request; responses_items.py makes the items of the response.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from llamad.api.generate.completion_json import ended_timings
from llamad.api.generate.completion_result import piece_timings
from llamad.api.generate.dialect import Dialect
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.openai import objects
from llamad.api.openai.chat_request import Chat, settle_chat, start, with_chat
from llamad.api.openai.responses_items import Events, OutputItems
from llamad.api.openai.responses_reading import ReadRequest, with_request
from llamad.api.openai.responses_request import Given
from llamad.api.request.errors import ApiError, PromptTooLongError
from llamad.api.service.error_dialects import CONTEXT_LENGTH, responses_body, responses_response
from llamad.api.service.response_store import ResponseStore, Stored
from llamad.api.service.served_model import ServedModel
from llamad.api.service.service import Service
from llamad.client.text_event import TextEvent
from llamad.http.exchange import Exchange
from llamad.http.request import Response
from llamad.options.table import Options

_encode = msgspec.json.Encoder().encode


def _usage(part: CompletionPart, n_thought: float) -> dict[str, Any]:
    done = part.ended
    return {
        "input_tokens": done.n_prompt,
        "input_tokens_details": {"cached_tokens": done.n_cached, "cache_write_tokens": 0},
        "output_tokens": done.n_decoded,
        "output_tokens_details": {"reasoning_tokens": round(n_thought)},
        "total_tokens": done.n_prompt + done.n_decoded,
    }


def _within(data: bytes, text: bytes, logprobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the logprobs of the tokens that begin in this text, at its last occurrence in the data."""
    start, out, offset = data.rfind(text), [], 0
    for one in logprobs:
        if start <= offset < start + len(text):
            out.append(one)
        offset += len(one["bytes"])
    return out


class ResponseDialect(Dialect[Job, CompletionPart]):
    """The dialect of one request: its id, and the fields of the request that it echoes. `keep` stores the response."""

    def __init__(
        self,
        chat: Chat,
        given: Given,
        generation: Options,
        keep: Callable[[str, dict[str, Any]], bool] | None = None,
    ) -> None:
        self.chat = chat
        self.members = given.members
        self.echo = given.echo | {"temperature": generation.temperature, "top_p": generation.top_p}
        self.keep = keep
        self.id = objects.new_id("resp_")
        self.created = int(time.time())
        self.events = Events()

    def _answer(self, part: CompletionPart) -> OutputItems:
        if not isinstance(part.state, OutputItems):
            part.state = OutputItems(self.chat, self.events, self.members)
        return part.state

    def _response(
        self, status: str, output: list[dict[str, Any]], part: CompletionPart | None
    ) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "model": self.chat.model,
            "output": output,
            "usage": _usage(part, self._answer(part).n_thought) if part is not None else None,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "background": False,
            "store": self.keep is not None,
            "truncation": "disabled",
            **self.echo,
        }

    def _logprobs(self, part: CompletionPart, piece: TextEvent) -> list[dict[str, Any]]:
        if not self.chat.logprobs:
            return []
        return list(objects.chat_logprobs(part.job.model.vocab, piece, self.chat.n_top, False))

    def _kept(self, response: dict[str, Any], part: CompletionPart) -> dict[str, Any]:
        """Return the response, and store it if the request asks for it and it is not too large."""
        calls = [item["status"] for item in response["output"] if item["type"] == "function_call"]
        part.has_calls = bool(calls) and "incomplete" not in calls
        if self.keep is not None:
            response["store"] = self.keep(self.id, response)
        return response

    def _status(self, part: CompletionPart) -> str:
        return "incomplete" if objects.finish_reason(part) == "length" else "completed"

    # Called by the job.

    def begin(self, job: Job) -> bytes:
        return self.events.first(self._response("in_progress", [], None))

    def piece(self, part: CompletionPart, piece: TextEvent) -> bytes:
        answer = self._answer(part)
        deltas = answer.parser.feed(piece.data.decode("utf-8", "replace"))
        self.events.more = piece_timings(part, piece)
        return answer.take(deltas, len(piece.tokens), self._logprobs(part, piece))

    def progress(self, part: CompletionPart, fields: dict[str, Any]) -> bytes:
        response = self._response("in_progress", [], None)
        return self.events.make("response.in_progress", response=response, **fields)

    def done(self, part: CompletionPart) -> bytes:
        answer, status = self._answer(part), self._status(part)
        timings = {"timings": ended_timings(part.ended, part.miss)}
        self.events.more = timings if part.job.generation.timings_per_token else {}
        out = answer.take(answer.parser.finish()) + answer.close(status)
        self.events.more = timings
        response = self._kept(self._response(status, answer.items, part), part)
        return out + self.events.make(f"response.{status}", response=response)

    def end(self, job: Job) -> bytes:
        """The last event has been sent: OpenAI's streams of responses have no `[DONE]`."""
        return b""

    def whole(self, job: Job) -> bytes:
        part = job.parts[0]
        answer, status = self._answer(part), self._status(part)
        data = part.data()
        deltas = answer.parser.feed(data.decode("utf-8", "replace")) + answer.parser.finish()
        answer.take(deltas, part.n_decoded)
        answer.close(status)
        if self.chat.logprobs:
            logprobs = [one for piece in part.pieces for one in self._logprobs(part, piece)]
            for item in answer.items:
                if item["type"] == "message":
                    content = item["content"][0]
                    content["logprobs"] = _within(data, content["text"].encode(), logprobs)
        return _encode(self._kept(self._response(status, answer.items, part), part))

    def failed(self, error: ApiError) -> bytes:
        """Return an error event: its own fields, and the usual error object. Before it stands the failed response, if
        the prompt is too long: Codex looks for the reason there, and would repeat the request without it."""
        code, before = error.type, b""
        if isinstance(error, PromptTooLongError):
            code = CONTEXT_LENGTH
            response = self._response("failed", [], None)
            response["error"] = {"code": code, "message": error.message}
            before = self.events.make("response.failed", response=response)
        fields = {"code": code, "message": error.message, "param": None}
        return before + self.events.make("error", **fields, **responses_body(error))

    def refused(self, error: ApiError) -> Response:
        return responses_response(error)


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /v1/responses and /responses."""
    served.ready()
    with_request(served, exchange, partial(_start, served, exchange))


def _start(served: ServedModel, exchange: Exchange, read: ReadRequest) -> None:
    model, engine = served.ready()
    request, given, n_bytes = read
    keep = None
    if given.items is not None:
        keep = partial(_keep, served.service.responses, exchange.request.key_name, given.items)

    def submit(chat: Chat) -> None:
        constraint = settle_chat(chat, request, served)
        dialect = ResponseDialect(chat, given, request, keep)
        job = Job(served, exchange, request, constraint, model, engine, dialect, id=dialect.id, markers=True)
        start(chat, job)

    with_chat(served, exchange, request, n_bytes, submit)


def _keep(store: ResponseStore, key: str, items: bytes, id: str, response: dict[str, Any]) -> bool:
    """Store the response if it is small enough; return whether it is."""
    stored = Stored.of(response, items)
    if not store.can_keep(stored.n_bytes):
        return False
    store.keep(key, id, stored)
    return True


def retrieve(service: Service, exchange: Exchange) -> None:
    """GET /v1/responses/{id_response}."""
    id, key = exchange.request.params["id_response"], exchange.request.key_name
    stored = service.responses.find(key, id)
    if stored is None:
        raise _not_stored(id)
    exchange.send(Response(200, stored.body))


def delete(service: Service, exchange: Exchange) -> None:
    """DELETE /v1/responses/{id_response}."""
    id, key = exchange.request.params["id_response"], exchange.request.key_name
    if not service.responses.drop(key, id):
        raise _not_stored(id)
    exchange.send(Response(200, _encode({"id": id, "object": "response", "deleted": True})))


def _not_stored(id: str) -> ApiError:
    return ApiError(404, f'response "{id[:64]}" is not stored (any more)')
