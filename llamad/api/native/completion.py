"""POST /completion: llama-server's own dialect, complete or streamed.

Runs on the event loop. job.py runs the request.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from llamad.api.generate import completion_json
from llamad.api.generate.completion_result import final_json, piece_timings, probabilities
from llamad.api.generate.dialect import Dialect
from llamad.api.generate.job import CompletionPart, Job
from llamad.api.generate.prepare import prepare
from llamad.api.generate.stream_event import TextFrame, write_event
from llamad.api.native.native_request import NativeRequest
from llamad.api.request import constraints
from llamad.api.request.errors import bad
from llamad.api.request.media import sent_prompts
from llamad.api.request.prompt import Prompts
from llamad.api.service.body_reading import with_options
from llamad.api.service.served_model import ServedModel
from llamad.client.text_event import TextEvent
from llamad.http.exchange import Exchange

_encode = msgspec.json.Encoder().encode
_FRAME = TextFrame(b'{"content":', b',"stop":false}', tokens=True)


class CompletionRequest(NativeRequest, kw_only=True):
    prompt: Prompts | None = None


class Plain(Dialect[Job, CompletionPart]):
    """The dialect of /completion: one object per prompt, or events with `content` and a last one with the rest."""

    holds = True

    def frame(self, part: CompletionPart) -> TextFrame | None:
        job = part.job
        return None if len(job.parts) > 1 or job.generation.timings_per_token else _FRAME

    def piece(self, part: CompletionPart, piece: TextEvent) -> bytes:
        job = part.job
        event: dict[str, Any] = {
            "content": piece.data.decode("utf-8", "replace"),
            "tokens": piece.tokens,
            "stop": False,
        }
        if len(job.parts) > 1:
            event["index"] = part.index
        if piece.probs:
            event["completion_probabilities"] = probabilities(job, piece)
        return write_event(event | piece_timings(part, piece))

    def progress(self, part: CompletionPart, fields: dict[str, Any]) -> bytes:
        event = {"index": part.index, "content": "", "tokens": [], "stop": False}
        return write_event(event | fields)

    def done(self, part: CompletionPart) -> bytes:
        g, last = part.job.generation, final_json(part)
        if isinstance(g, NativeRequest) and g.include_usage:
            last["usage"] = completion_json.usage([part.ended])
        return write_event(last)

    def end(self, job: Job) -> bytes:
        return b""

    def whole(self, job: Job) -> bytes:
        # They are encoded one after the other, so that large options exist only once as Python objects.
        finals = [msgspec.Raw(_encode(final_json(part))) for part in job.parts]
        return bytes(finals[0]) if len(finals) == 1 else _encode(finals)


PLAIN = Plain()


def handle(served: ServedModel, exchange: Exchange) -> None:
    """POST /completion and /completions."""
    with_options(served, exchange, CompletionRequest, partial(_start, served, exchange))


def _start(served: ServedModel, exchange: Exchange, request: CompletionRequest) -> None:
    model, engine = served.ready()
    constraint = constraints.parse(request, served.constraint)
    sent, prompts = request.system_prompt, request.prompt
    request.prompt = None  # freed, because the options live longer
    job = Job(served, exchange, request, constraint, model, engine, PLAIN)
    job.memory.keep_only(0)
    if sent is not None and prompts in (None, ("",)):
        # The request only sets the system prompt: it is prefilled, and nothing is generated.
        prompts, request.n_predict = Prompts(("",)), 0
        if not sent.prompt:
            served.key_states.set_system(exchange.request.key_name, sent)
            job.answer_nothing()
            return
    if prompts is None:
        raise bad('"prompt" is missing')
    texts = sent_prompts(prompts, request.image_data, reads_media=served.media is not None)
    request.image_data = []
    prepare(served, exchange, request, constraint, model, texts, job.submit)
