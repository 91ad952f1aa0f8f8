"""Owns requests whose task is with the engine before anything else is made for them.

Runs on the event loop. With a form at hand (forms.py) the engine can begin as soon as the prompt is read; the job,
which only the answer needs, is made when the engine first says something, and by then it computes. So of several
requests that come together, all are with the engine in the time that it took to make the first one's job.
"""

from __future__ import annotations

import dataclasses
import secrets
from typing import Any

from llamad.api import parameters
from llamad.api.errors import ApiError
from llamad.api.forms import Form
from llamad.api.generation import UINT32_MAX
from llamad.api.job import Dialect, Job, Part
from llamad.api.preparing import Ready
from llamad.api.service import Service
from llamad.engine.core import clock_us
from llamad.engine.engine import Engine
from llamad.engine.model import Model
from llamad.engine.task import Done, TokenProbs
from llamad.http import sse
from llamad.http.exchange import Exchange


def submit(
    service: Service,
    exchange: Exchange,
    model: Model,
    engine: Engine,
    dialect: Dialect,
    body: bytes | memoryview,
) -> bool:
    """Whether the request has a known form, and is with the engine now. What cannot be had at once, or not at all, is
    not refused here but by who reads all of it."""
    if service.system.tokens or not engine.can_accept(1) or not isinstance(body, bytes):
        return False
    found = service.forms.find(body, model.vocab)
    if found is None or len(found[1]) // 4 >= model.n_ctx_slot:
        return False
    Early(service, exchange, model, engine, dialect, *found)
    return True


def learn(service: Service, job: Job, raw: bytes | memoryview, body: dict[str, Any]) -> None:
    """Of a request that was read whole: have the next of its kind submitted early. Its options must mean the same for
    any prompt and whenever it comes; a constraint, for one, is compiled and kept for as long as somebody uses it."""
    g = job.generation
    if (
        not isinstance(raw, bytes)
        or len(job.parts) != 1
        or job.ready is None
        or job.ready.constraint is not None
    ):
        return
    if g.n != 1 or g.system_prompt is not None or service.system.tokens or service.settings.verbose_prompt:
        return
    shape = service.forms.recurring(raw, job.model.vocab, "seed" in body)
    running = job.engine.tasks.get(job.parts[0].task_id)
    if shape is not None and running is not None and running.task is not None:
        is_random = parameters.has_random_seed(body, service.defaults)
        service.forms.add(Form(shape, running.task.command(), g, is_random))


class Early:
    """A request's sink until it has its job."""

    __slots__ = (
        "_dialect",
        "_engine",
        "_exchange",
        "_form",
        "_model",
        "_seed",
        "_service",
        "_t_begin",
        "_t_submit_us",
        "_task_id",
        "_tokens",
    )

    def __init__(
        self,
        service: Service,
        exchange: Exchange,
        model: Model,
        engine: Engine,
        dialect: Dialect,
        form: Form,
        tokens: bytes,
        seed: int,
    ) -> None:
        self._service = service
        self._exchange = exchange
        self._model = model
        self._engine = engine
        self._dialect = dialect
        self._form = form
        self._tokens = tokens
        if seed < 0:
            seed = secrets.randbelow(UINT32_MAX) if form.has_random_seed else form.generation.seed
        self._seed = seed
        self._t_begin = exchange.request.t_start
        self._t_submit_us = clock_us()
        request = exchange.request
        self._task_id = engine.submit_command(
            form.command,
            tokens,
            self,
            request_id=request.request_id,
            key_name=request.key_name,
            deadline_us=service.deadline_us(self._t_submit_us),
            seed=seed,
        )
        exchange.on_abort = self._abort
        if form.generation.stream:
            service.pings.add(self)

    def _abort(self) -> None:
        self._engine.abort(self._task_id)

    def _become(self) -> Part:
        """The job, which hears of the task from now on."""
        form, service = self._form, self._service
        generation = form.generation
        if self._seed != generation.seed:
            generation = dataclasses.replace(generation, seed=self._seed)
        service.pings.discard(self)
        job = Job(service, self._exchange, generation, self._model, self._engine, self._dialect, plain=True)
        job.t_written = self._t_begin  # nothing was yet, for so long
        part = job.take_over(
            Ready([self._tokens], service.system, None, b""), self._task_id, self._seed, self._t_submit_us
        )
        self._engine.hand_over(self._task_id, part)
        return part

    def ping(self, now: float, ping_seconds: float) -> None:
        """A stream that waits for a slot."""
        if now - self._t_begin >= ping_seconds:
            self._become().job.write(sse.PING)

    # From the engine: the first of these is the last. It is on_admitted or on_failed; the others are a sink's, too.

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None:
        self._become().on_admitted(slot, n_cached, t_us)

    def on_prompt(self, tokens: list[int], probs: list[TokenProbs]) -> None:
        self._become().on_prompt(tokens, probs)

    def on_text(self, *event: Any) -> None:
        self._become().on_text(*event)

    def on_done(self, done: Done) -> None:
        self._become().on_done(done)

    def on_failed(self, failure: int, code: int) -> None:
        self._become().on_failed(failure, code)

    def on_broken(self) -> None:
        """The job could not be made."""
        self._service.pings.discard(self)
        self._exchange.fail(self._dialect.refused(ApiError(500, "The server failed; its log says why")))
