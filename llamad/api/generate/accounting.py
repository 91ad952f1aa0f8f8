"""Owns what the access log says of a request beyond HTTP: model, tokens, waiting, first token, why it ended.

Called once, on the event loop, when the response is over or its client is gone. Must show no text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from llamad.api.generate.outlet import Outlet
from llamad.api.request.parse import GenerationRequest
from llamad.api.service.adapters import JOINT
from llamad.api.service.service import Service
from llamad.base.clock import clock_us
from llamad.client.adapters import Use
from llamad.client.engine import Engine
from llamad.client.task import FAILURE_ABORTED, FAILURE_DEADLINE, STOP_NAMES, Done
from llamad.http.exchange import Exchange

Details: TypeAlias = list[tuple[str, str | int | float]]  # names of fields; seconds are floats

_FINISHED = {"eos": "stop", "limit": "length", "word": "word", "none": "error"}


class Part(Protocol):
    """One completion of one prompt: job.Part."""

    n_prompt: int
    n_cached: int
    n_decoded: int  # as far as its text has come
    t_admitted_us: int
    t_first_us: int
    done: Done | None
    has_calls: bool
    task_id: int


class Job(Protocol):
    """A generating request: job.Job."""

    service: Service
    engine: Engine
    exchange: Exchange
    generation: GenerationRequest
    out: Outlet
    adapters: Sequence[Use]
    t_submit_us: int
    finish: str

    @property
    def parts(self) -> Sequence[Part]: ...


def failed_finish(failure: int) -> str:
    """Why a task ended that failed in the engine."""
    if failure == FAILURE_DEADLINE:
        return "timeout"
    return "drain" if failure == FAILURE_ABORTED else "error"


def model_word(service: Service, uses: Sequence[Use]) -> str:
    """The model's name, and its adapters'."""
    name = service.public_name
    if not uses:
        return name
    files = {one.info.id: one.file for one in service.host.adapters.list()}
    names = []
    for use in uses:
        file = files.get(use.info.id)  # None: it was unloaded meanwhile
        names.append(file.name or os.path.basename(file.path) if file is not None else str(use.info.id))
    return name + JOINT + "+".join(names)


def details(job: Job) -> Details:
    """Of a generating request; nothing of one that was refused before it reached the engine."""
    parts, n = job.parts, job.generation.n
    if not parts:
        return []
    found: Details = [("model", model_word(job.service, job.adapters))]
    if len(parts) > 1:
        found += [("prompts", len(parts) // n), ("completions", len(parts))]
    found += [
        # As usage counts: the prompt of n completions once.
        ("tokens_in", sum([part.n_prompt for part in parts[::n]])),
        ("tokens_cached", sum([part.n_cached for part in parts[::n]])),
        ("tokens_out", sum([_n_decoded(job, part) for part in parts])),
        ("queue_ms", _queue_seconds(job)),
    ]
    first = [part.t_first_us for part in parts if part.t_first_us]
    if first:
        found.append(("first_ms", max(0.0, min(first) / 1e6 - job.exchange.request.t_start)))
    found.append(("finish", ",".join(dict.fromkeys([_finish(job, part) for part in parts]))))
    return found


def told(job: Job) -> str:
    """The numbers of a generation that went on without its client."""
    return " ".join([f"{name}={value}" for name, value in details(job) if not isinstance(value, float)])


def text_details(service: Service, uses: Sequence[Use], texts: Sequence[bytes]) -> Details:
    """Of a request for vectors; `texts` are token ids."""
    found: Details = [("model", model_word(service, uses))]
    if len(texts) > 1:
        found.append(("prompts", len(texts)))
    found.append(("tokens_in", sum(map(len, texts)) // 4))
    return found


def _n_decoded(job: Job, part: Part) -> int:
    """Also of a part that is not over, whose text the engine keeps to the end if it is not streamed."""
    if part.done is not None:
        return part.done.n_decoded
    return max(part.n_decoded, job.engine.n_decoded(part.task_id))


def _queue_seconds(job: Job) -> float:
    """The longest wait for a slot, which may not be over."""
    if not job.t_submit_us:
        return 0.0
    now = clock_us()
    return max([(part.t_admitted_us or now) - job.t_submit_us for part in job.parts]) / 1e6


def _finish(job: Job, part: Part) -> str:
    if part.done is not None:
        name = _FINISHED[STOP_NAMES[part.done.stop_type]]
        return "tool_calls" if part.has_calls and name != "length" else name
    if job.finish:
        return job.finish
    return "detached" if job.out.is_kept and not job.out.closed else "abort"
