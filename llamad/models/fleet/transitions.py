"""The table of models and every change of their states. Nothing else may change a model's state or the ledger.

Pure. It carries out decisions and collects the effects that follow from them; it decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from llamad.models.fleet.counters import Counters
from llamad.models.fleet.effects import Admit, Effect, Limits, Proceed, Refit, Refuse, Start, Stop, StopReason
from llamad.models.fleet.ledger import Ledger
from llamad.models.fleet.model import Model, State

# A model that has served for so long is forgiven its earlier failures.
SOUND_SECONDS = 60.0
BACKOFF_SECONDS = 5.0
BACKOFF_MAX_SECONDS = 300.0

# The beginning is llama-server's, because clients search for it.
NOT_LOADED = "model is not loaded; load it with POST /models/load, or leave out autoload=false"

_REST: Mapping[StopReason, State] = {"slept": State.SLEEPING, "failed": State.FAILED}


class Table:
    def __init__(self, limits: Limits, ledger: Ledger) -> None:
        self.limits = limits
        self.ledger = ledger
        self.counters = Counters()
        self.models: dict[str, Model] = {}
        self.tickets: dict[int, Model] = {}  # of the requests that wait
        self._effects: list[Effect] = []

    def take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    # The way up.

    def start(self, model: Model, now: float) -> None:
        """Give a model without a process one that plans."""
        model.state = State.PLANNING
        model.started_at = now
        model.is_delayed = False
        self._effects.append(Refit(model.name) if model.is_refit else Start(model.name))
        model.is_refit = False

    def plan(self, model: Model, need: Mapping[str, int]) -> None:
        model.state = State.WAITING
        model.need = {device: n for device, n in need.items() if n > 0}

    def proceed(self, model: Model) -> None:
        """Reserve the memory of a planned model and let it load."""
        assert model.need is not None
        self.ledger.reserve(model.name, model.need)
        model.state = State.LOADING
        model.is_delayed = False
        self._effects.append(Proceed(model.name))

    def serve(self, model: Model, measured: Mapping[str, int], now: float) -> None:
        """Settle the memory of a model that has loaded. If it drains, it goes on to drain."""
        self.ledger.settle(model.name, measured)
        self.counters.loads[model.title] += 1
        model.loaded_at = now
        model.is_crashed = model.has_refitted = False
        model.rest = State.UNLOADED
        model.failure = ""
        if model.state is not State.DRAINING:
            self._open(model, now)

    def _open(self, model: Model, now: float) -> None:
        model.state = State.LOADED
        model.asked_at = None
        for ticket, since in model.waiters.items():
            del self.tickets[ticket]
            self.counters.waits.observe(now - since)
            self.admit(model, ticket, now)
        model.waiters.clear()
        model.bound.clear()

    # Requests.

    def admit(self, model: Model, ticket: int, now: float) -> None:
        model.n_active += 1
        model.used_at = now
        self._effects.append(Admit(ticket))

    def enqueue(self, model: Model, ticket: int, now: float, *, loads: bool) -> None:
        model.waiters[ticket] = now
        self.tickets[ticket] = model
        if not loads:
            model.bound.add(ticket)

    def forget(self, ticket: int) -> None:
        """Take a request out of its queue if it waits in one."""
        model = self.tickets.pop(ticket, None)
        if model is not None:
            del model.waiters[ticket]
            model.bound.discard(ticket)

    def refuse(
        self, name: str, ticket: int, status: int, reason: str, retry_after: float | None = None
    ) -> None:
        self.forget(ticket)
        seconds = None if retry_after is None else max(1, math.ceil(retry_after))
        self._effects.append(Refuse(ticket, status, reason, seconds))
        self.counters.refusals[name, status] += 1

    def refuse_all(self, model: Model, status: int, reason: str, retry_after: float | None = None) -> None:
        """Refuse everybody who waits for a model, also the operator."""
        model.asked_at = None
        for ticket in list(model.waiters):
            self.refuse(model.title, ticket, status, reason, retry_after)

    def refuse_bound(self, model: Model) -> None:
        """Refuse those who waited for a model that leaves, if it must not be loaded again for them."""
        for ticket in sorted(model.bound):
            self.refuse(model.title, ticket, 400, NOT_LOADED)

    # The way down.

    def crash(self, model: Model) -> None:
        """Note that the engine died and is started again by its host, which keeps the memory."""
        model.is_crashed = True
        if model.state is State.LOADED:
            model.state = State.LOADING

    def drain(self, model: Model, reason: StopReason) -> None:
        model.state = State.DRAINING
        model.leaving = reason

    def undrain(self, model: Model, now: float) -> None:
        """Let a draining model serve again; whoever came in the meantime is admitted."""
        self.counters.n_drains_cancelled += model.is_victim
        model.leaving = None
        if model.is_crashed:
            model.state = State.LOADING
        else:
            self._open(model, now)

    def stop(self, model: Model, reason: StopReason) -> None:
        """End the process of a model without running requests. Others start and load after it, because they need what
        it has."""
        self.refuse_bound(model)
        if reason != "unneeded":  # it goes back to where it was
            model.rest = _REST.get(reason, State.UNLOADED)
        model.state = State.STOPPING
        model.leaving = reason
        self.counters.stops[model.title, reason] += 1
        is_later = [isinstance(effect, Start | Refit | Proceed) for effect in self._effects]
        self._effects.insert((*is_later, True).index(True), Stop(model.name, reason))

    def end(self, model: Model) -> None:
        """Note that the model has no process any more, and that its memory is free."""
        self.ledger.release(model.name)
        model.leaving = None
        model.keep_seconds = 0.0
        model.is_crashed = model.is_delayed = False
        model.state = model.rest
        if model.is_removed:
            del self.models[model.name]

    def fail(self, model: Model, reason: str, now: float) -> None:
        """Give a model up for a while: refuse everybody who waits for it, and stop its process if it has one that only
        waits for memory."""
        if model.loaded_at >= model.started_at and now - model.loaded_at >= SOUND_SECONDS:
            model.n_failures = 0
        seconds = min(BACKOFF_MAX_SECONDS, BACKOFF_SECONDS * 2.0 ** min(model.n_failures, 16))
        model.n_failures += 1
        model.failure = reason
        model.retry_at = now + seconds
        model.is_refit = model.has_refitted = False
        self.counters.failures[model.title] += 1
        self.refuse_all(model, 500, reason, seconds)
        if model.state is State.WAITING:
            self.stop(model, "failed")
        else:
            model.rest = State.FAILED
            self.end(model)
