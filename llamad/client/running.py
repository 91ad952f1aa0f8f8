"""A task on the front's side: its sink, where it is, and what is needed to go on with it in another engine.

Runs on the event loop. Must not know rings or processes.
"""

from __future__ import annotations

import time

from llamad.client.events import Admitted, Progress, PromptTokens
from llamad.client.history import History
from llamad.client.task import Sink, Task


class Running:
    """A task that was submitted and has not ended. Between two engines it is an orphan: `is_sent` is False."""

    __slots__ = (
        "history",
        "is_aborted",
        "is_paused",
        "is_preparing",
        "is_sent",
        "n_crashes",
        "n_processed",
        "n_shown",
        "n_shown_before",
        "sink",
        "slot",
        "t_submit",
        "task",
        "was_admitted",
    )

    def __init__(self, sink: Sink, task: Task) -> None:
        self.sink = sink
        self.task = task  # keeps the memory alive that the engine uses
        self.slot = -1  # -1 until the task is admitted
        self.t_submit = time.monotonic()  # the time when it was sent to the engine
        self.history = History()
        self.is_sent = True  # an engine has it, or will have it with the next command
        self.is_preparing = False  # an engine prepares its grammar, or the rows of its images and sound
        self.is_aborted = False
        self.is_paused = False
        self.was_admitted = False  # by any engine
        self.n_crashes = 0  # engines that ended while they ran, prepared or admitted it
        # The sink has the first n_shown tokens of the prompt's probabilities; this engine has sent n_shown_before.
        self.n_shown = self.n_shown_before = 0
        self.n_processed = -1  # the progress of its prefill that the sink was told

    def is_queued(self, t_before: float) -> bool:
        """Return whether the task has waited for its first slot since this time. One that had a slot in an earlier
        engine gets another as soon as its prefix is there, so it needs no room."""
        return self.is_sent and self.slot < 0 and not self.was_admitted and self.t_submit <= t_before

    def on_admitted(self, event: Admitted) -> None:
        """The task has got a slot. The sink is told once, whatever happens to engines."""
        self.slot = event.slot
        if not self.was_admitted:
            self.was_admitted = True
            self.history.n_cached = event.n_cached
            self.sink.on_admitted(event.slot, event.n_cached, event.t_us)

    def on_prompt(self, event: PromptTokens) -> None:
        """Pass on what the sink does not have from an earlier engine."""
        n_known = min(len(event.tokens), max(0, self.n_shown - self.n_shown_before))
        self.n_shown_before += len(event.tokens)
        self.n_shown = max(self.n_shown, self.n_shown_before)
        if n_known < len(event.tokens):
            self.sink.on_prompt(event.tokens[n_known:], event.probs[n_known:])

    def on_progress(self, event: Progress) -> None:
        """Pass on progress. An engine that prefills again what an earlier one had makes none at first."""
        if event.n_processed > self.n_processed:
            self.n_processed = event.n_processed
            self.sink.on_progress(event.n_processed, event.prompt_us)

    def lose_engine(self, was_in_hand: bool) -> None:
        """The engine has ended: the task is an orphan until another engine takes it. With `was_in_hand` the engine was
        about to admit it."""
        self.n_crashes += self.slot >= 0 or self.is_preparing or was_in_hand
        self.slot = -1
        self.is_sent = self.is_preparing = False
        self.n_shown_before = 0

    def can_go_on(self, crashes_max: int) -> bool:
        """Return whether another engine may take the task, which was running in as many as n_crashes that ended."""
        return self.n_crashes <= crashes_max and self.history.can_go_on
