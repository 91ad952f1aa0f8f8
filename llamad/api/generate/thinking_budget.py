"""The reasoning budget: reasoning that has used it up, or that the client ends, is cut, and the answer follows.

Runs on the event loop. The engine cannot be given text to write, so the task is aborted and another one is submitted.
Its prompt is the old prompt, the text so far and the end of the reasoning; all but the last tokens are still cached.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

import msgspec

from llamad.api.generate.job import CompletionPart
from llamad.api.request.constraints import Constraint, ConstraintSource
from llamad.api.service.admission import Place
from llamad.api.service.served_model import ServedModel
from llamad.client.events import Done, TokenProbs
from llamad.client.task import Task
from llamad.client.text_event import TextEvent
from llamad.http.exchange import Exchange
from llamad.protocol.messages import STOP_LIMIT


class Budget(msgspec.Struct):
    """The budget of one request. `ends` is the text that ends reasoning; `forced` is written when it is cut."""

    n_tokens: int  # -1: no limit
    opens: bytes
    ends: bytes
    is_open: bool  # whether the prompt opens the reasoning
    forced: str
    rest: ConstraintSource | None = None  # the constraint after the reasoning; None: the task's own
    constraint: Constraint | None = None  # `rest`, compiled


def with_budget(
    served: ServedModel, exchange: Exchange, budget: Budget | None, then: Callable[[], None]
) -> None:
    """Call `then` once `rest` is compiled: now, or later unless the client has disconnected by then."""
    if budget is None or budget.rest is None:
        then()
        return
    budget.constraint = served.grammars.known(budget.rest)
    if budget.constraint is not None:
        then()
    else:
        served.service.spawn(exchange, _compiled(served, exchange, budget, budget.rest, then))


async def _compiled(
    served: ServedModel, exchange: Exchange, budget: Budget, rest: ConstraintSource, then: Callable[[], None]
) -> None:
    with Place(served.preparing, served.service.client(exchange.request)) as client:
        budget.constraint = await served.grammars.find(client, rest, served.ready()[1])
    served.ready()
    if not exchange.closed:
        then()


class Watched:
    """The sink of a part's first task. It passes its events on until the budget is used up."""

    def __init__(self, budget: Budget, part: CompletionPart, task: Task) -> None:
        self._part = part
        # These events are passed on unchanged.
        self.on_admitted, self.on_prompt = part.on_admitted, part.on_prompt
        self.on_progress, self.on_broken = part.on_progress, part.on_broken
        self._task = task
        self._budget = budget
        self._tokens = array("i")
        self._n_thought = 0
        # Before the reasoning: all text; within it: a possible start of the text that ends it.
        self._seen = b""
        self._is_open = budget.is_open
        self._is_over = False
        self._is_cut = False
        self._is_ended_by_client = False  # whether the client has ended the reasoning
        self._times = (0, 0, 0)  # the times of the last text

    def on_text(self, text: TextEvent) -> None:
        if self._is_cut:
            return
        self._part.on_text(text)
        if self._is_over:
            return
        self._tokens.extend(text.tokens)
        self._times = (text.t_us, text.prompt_us, text.predict_us)
        if self._is_too_long(len(text.tokens), text.data):
            self._cut()

    def end_thinking(self) -> None:
        """Cut the reasoning now, or at its first text. Does nothing if there is no reasoning."""
        if self._is_cut or self._is_over or not self._is_open:
            return
        self._is_ended_by_client = True
        if self._tokens and not self._is_ending:
            self._cut()

    def _is_too_long(self, n_tokens: int, data: bytes) -> bool:
        """Whether the budget is used up after this text. Reasoning that is just ending may finish."""
        budget = self._budget
        self._seen += data
        if not self._is_open:
            begun = self._seen.lstrip()
            self._is_open = begun.startswith(budget.opens)
            self._is_over = not self._is_open and not budget.opens.startswith(begun)
            if self._is_open:
                self._seen = begun[len(budget.opens) :]
            return False
        self._n_thought += n_tokens
        if budget.ends in self._seen:
            self._is_over = True
            return False
        self._seen = self._seen[-len(budget.ends) + 1 :] if len(budget.ends) > 1 else b""
        is_used_up = self._is_ended_by_client or 0 <= budget.n_tokens <= self._n_thought
        return is_used_up and not self._is_ending

    @property
    def _is_ending(self) -> bool:
        ends = self._budget.ends
        return any(self._seen.endswith(ends[:n]) for n in range(1, len(ends)))

    def _cut(self) -> None:
        part, job, task = self._part, self._part.job, self._task
        options = task.options
        t_us, prompt_us, predict_us = self._times
        self._is_cut = True
        job.engine.abort(part.task_id)
        part.task_id = 0
        data = job.model.vocab.tokenize(self._budget.forced.encode(), False, True)
        forced = memoryview(data).cast("i").tolist()
        certain = 1.0 if options.post_sampling_probs else 0.0
        probs: list[TokenProbs] = [(certain, []) for _ in forced] if options.n_probs else []
        n_decoded = len(self._tokens) + len(forced)
        text = self._budget.forced.encode()
        part.on_text(TextEvent(forced, text, n_decoded, t_us, prompt_us, predict_us, probs))
        prompt = task.prompt + self._tokens.tobytes() + data
        n_left = options.n_predict - n_decoded if options.n_predict >= 0 else options.n_predict
        rest = Rest(part, n_decoded, prompt_us, predict_us)
        if n_left == 0 or (options.n_predict >= 0 and n_left < 0) or len(prompt) // 4 >= job.model.n_ctx_slot:
            n_slot = part.n_prompt + n_decoded
            rest.on_done(Done(STOP_LIMIT, n_prompt=part.n_prompt, n_slot_tokens=n_slot, t_us=t_us))
            return
        constraint = self._budget.constraint
        part.task_id = job.engine.submit(
            msgspec.structs.replace(
                task,
                # Its priority is higher, because it has already waited in the queue.
                context=msgspec.structs.replace(task.context, priority=task.context.priority + 1),
                prompt=prompt,
                options=msgspec.structs.replace(options, n_predict=n_left),
                stream=job.generation.stream,
                grammar=constraint.grammar if constraint is not None else task.grammar,
                group=0,
                prompt_probs=False,
            ),
            rest,
            goes_on=True,
        )
        if job.tasks.is_paused:
            job.engine.pause(part.task_id)

    def on_done(self, done: Done) -> None:
        if not self._is_cut:
            self._part.on_done(done)

    def on_failed(self, failure: int, code: int) -> None:
        if not self._is_cut:
            self._part.on_failed(failure, code)


class Rest:
    """The sink of the second task. It adds the counts and times of the first."""

    def __init__(self, part: CompletionPart, n_before: int, prompt_us: int, predict_us: int) -> None:
        self._part = part
        self.on_failed, self.on_broken = part.on_failed, part.on_broken  # passed on unchanged
        self._n_before = n_before
        self._prompt_us = prompt_us
        self._predict_us = predict_us

    def on_admitted(self, slot: int, n_cached: int, t_us: int) -> None:
        pass  # the part was admitted with its first task

    def on_prompt(self, tokens: list[int], probs: list[TokenProbs]) -> None:
        pass  # never requested

    def on_progress(self, n_processed: int, prompt_us: int) -> None:
        pass  # the client already got the progress of the prompt

    def on_text(self, text: TextEvent) -> None:
        # Prefilling the reasoning again counts as decoding.
        spent = self._predict_us + text.prompt_us + text.predict_us
        n_decoded = text.n_decoded + self._n_before
        self._part.on_text(
            TextEvent(text.tokens, text.data, n_decoded, text.t_us, self._prompt_us, spent, text.probs)
        )

    def on_done(self, done: Done) -> None:
        self._part.on_done(
            msgspec.structs.replace(
                done,
                n_prompt=self._part.n_prompt,
                n_cached=self._part.n_cached,
                n_decoded=done.n_decoded + self._n_before,
                prompt_us=self._prompt_us,
                predict_us=self._predict_us + done.prompt_us + done.predict_us,
            )
        )
