"""What the access log says about a request besides HTTP: model, tokens, waiting time, first token, why it ended.

Called once, on the event loop, when the response is complete or its client has disconnected. Must show no text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from llamad.api.generate.response_writer import ResponseWriter
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.adapters import JOINT
from llamad.api.service.served_model import ServedModel
from llamad.base.clock import clock_us
from llamad.client.engine_client import EngineClient
from llamad.client.events import Done
from llamad.http.exchange import Exchange
from llamad.protocol import messages

# Names of fields and their values; seconds are floats.
Details: TypeAlias = list[tuple[str, str | int | float]]

# The word in the log for the engine's stop_type.
_FINISHED = {
    messages.STOP_EOS: "stop",
    messages.STOP_LIMIT: "length",
    messages.STOP_LOOP: "loop",
    messages.STOP_WORD: "word",
    messages.STOP_NONE: "error",
}


class CountedPart(Protocol):
    """One completion of one prompt; it is job.CompletionPart."""

    n_prompt: int
    n_cached: int
    n_decoded: int  # the tokens whose text has arrived
    t_admitted_us: int
    t_first_us: int
    done: Done | None
    has_calls: bool
    task_id: int


class Job(Protocol):
    """A generation request; it is job.Job."""

    served: ServedModel
    engine: EngineClient
    exchange: Exchange
    generation: GenerationRequest
    out: ResponseWriter
    adapter_ids: Sequence[int]
    t_submit_us: int
    finish: str

    @property
    def parts(self) -> Sequence[CountedPart]: ...


def failed_finish(failure: int) -> str:
    """Return the word in the log for a task that failed in the engine."""
    if failure == messages.FAILURE_DEADLINE:
        return "timeout"
    return "drain" if failure == messages.FAILURE_ABORTED else "error"


def model_word(served: ServedModel, adapter_ids: Sequence[int]) -> str:
    """Return the model's name and those of its adapters. The adapters are given by number, because holding an adapter
    would keep it open."""
    name = served.public_name
    if not adapter_ids:
        return name
    files = {one.info.id: one.file for one in served.host.adapters.list()}
    names = []
    for number in adapter_ids:
        file = files.get(number)  # None if it was unloaded in the meantime
        names.append(file.name or os.path.basename(file.path) if file is not None else str(number))
    return name + JOINT + "+".join(names)


def details(job: Job) -> Details:
    """Return the fields of a generation request. If it was refused before it reached the engine, there are none, or its
    model if the server has many."""
    parts, n = job.parts, job.generation.n
    if not parts:
        return [("model", job.served.public_name)] if job.served.gate is not None else []
    # This is a single loop, because it is a good part of the time that a short request takes.
    n_in = n_cached = n_out = t_first_us = wait_us = 0
    finish = ""
    for i, part in enumerate(parts):
        if i % n == 0:  # the prompt of n completions counts once, as in `usage`
            n_in += part.n_prompt
            n_cached += part.n_cached
        done = part.done
        n_out += done.n_decoded if done is not None else _n_decoded(job, part)
        wait_us = max(wait_us, (part.t_admitted_us or clock_us()) - job.t_submit_us)
        if part.t_first_us and not 0 < t_first_us < part.t_first_us:
            t_first_us = part.t_first_us
        word = _finish(job, part)
        if not finish:
            finish = word
        elif word not in finish.split(","):
            finish += "," + word
    fields: Details = [("model", model_word(job.served, job.adapter_ids))]
    if len(parts) > 1:
        fields += ("prompts", len(parts) // n), ("completions", len(parts))
    fields += ("tokens_in", n_in), ("tokens_cached", n_cached), ("tokens_out", n_out)
    if job.t_submit_us:
        fields.append(("queue_ms", wait_us / 1e6))
    if t_first_us:
        fields.append(("first_ms", max(0.0, t_first_us / 1e6 - job.exchange.request.t_start)))
    fields.append(("finish", finish))
    return fields


def summary(job: Job) -> str:
    """Return the numbers of a generation that went on without its client, as text."""
    return " ".join([f"{name}={value}" for name, value in details(job) if not isinstance(value, float)])


def text_details(served: ServedModel, adapter_ids: Sequence[int], texts: Sequence[bytes]) -> Details:
    """Return the fields of a request for vectors; `texts` are token ids."""
    fields: Details = [("model", model_word(served, adapter_ids))]
    if len(texts) > 1:
        fields.append(("prompts", len(texts)))
    fields.append(("tokens_in", sum(map(len, texts)) // 4))
    return fields


def _n_decoded(job: Job, part: CountedPart) -> int:
    """Return the decoded tokens of a part that has not ended. If it is not streamed, the engine keeps its text to the
    end."""
    return max(part.n_decoded, job.engine.n_decoded(part.task_id))


def _finish(job: Job, part: CountedPart) -> str:
    if part.done is not None:
        name = _FINISHED[part.done.stop_type]
        return "tool_calls" if part.has_calls and name != "length" else name
    if job.finish:
        return job.finish
    return "detached" if job.out.is_kept and not job.out.closed else "abort"
