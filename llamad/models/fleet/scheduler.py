"""The scheduler of the fleet: takes what happens as calls and returns what is to be done about it, as effects.

Pure: no I/O, no clock, no tasks. `now` never runs backwards. The driver calls tick() when next_tick() says so. Every
Stop is answered by exactly one stopped(); news of an engine that arrive between a Stop and its stopped() are ignored.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from llamad.models.fleet.allocator import Allocator
from llamad.models.fleet.counters import Counters
from llamad.models.fleet.effects import Effect, Limits, StopReason
from llamad.models.fleet.ledger import Ledger
from llamad.models.fleet.model import RESTING, Model, State
from llamad.models.fleet.transitions import Table

RELOAD_SECONDS = 5.0  # the guess for a model that was never loaded


class Scheduler:
    """`memory_max` is in bytes on each device for all models together; 0: no limit."""

    def __init__(self, limits: Limits, memory_max: int = 0) -> None:
        self.ledger = Ledger(memory_max)
        self._limits = limits
        self._table = Table(limits, self.ledger)
        self._models = self._table.models
        self._allocator = Allocator(self._table)
        self._deadlines: list[tuple[float, int]] = []  # a heap; tickets that wait no longer are skipped
        self._ran_at = -math.inf  # when the allocator ran last

    # The catalogue.

    def add(
        self,
        name: str,
        *,
        title: str = "",
        is_pinned: bool = False,
        sleep_seconds: float = -1.0,
        reload_seconds: float = RELOAD_SECONDS,
    ) -> None:
        """Add a model, or change the settings of one that is known; tick() must follow then, because one that drains
        for others and is pinned now must not go on to drain. A model that was removed and has not stopped yet
        comes back, and loads again when it is asked for."""
        model = self._models.get(name)
        if model is None:
            self._models[name] = Model(name, title or name, is_pinned, sleep_seconds, reload_seconds)
            return
        model.title = title or model.title
        model.is_pinned = is_pinned
        model.sleep_seconds = sleep_seconds
        model.is_removed = False

    def idle_limit(self, name: str) -> float:
        """Return after how many idle seconds a model sleeps; negative: never."""
        model = self._models[name]
        limit = model.sleep_seconds
        return limit if limit < 0.0 else max(limit, model.keep_seconds)

    def keep(self, name: str, seconds: float) -> None:
        """Let a model sleep no sooner than after so many idle seconds, until it stops."""
        model = self._models[name]
        model.keep_seconds = max(model.keep_seconds, seconds)

    def remove(self, name: str, now: float, reason: StopReason = "removed") -> list[Effect]:
        """Let running requests finish, then stop the model and forget it. Requests that wait for it are refused."""
        model = self._models[name]
        self._table.refuse_all(model, 404, f"the model '{model.title}' was removed")
        model.is_removed = True
        self._leave(model, reason)
        return self._settled(now)

    # Requests.

    def request(
        self, name: str, ticket: int, now: float, deadline: float = math.inf, *, loads: bool = True
    ) -> list[Effect]:
        """Admit the request at once if its model is loaded; else let it wait, until its deadline. If it must not load a
        model (`loads`), and this one is about to leave, it waits only until that is certain."""
        model = self._models.get(name)
        if model is None or model.is_removed:
            title = model.title if model is not None else name
            self._table.refuse("", ticket, 404, f"there is no model '{title}'")
        elif model.state is State.LOADED:
            self._table.admit(model, ticket, now)
        elif now < model.retry_at and State.FAILED in (model.state, model.rest):
            self._table.refuse(model.title, ticket, 500, model.failure, model.retry_at - now)
        elif self._limits.queue_max and len(model.waiters) >= self._limits.queue_max:
            reason = f"{len(model.waiters)} requests wait for the model '{model.title}' already"
            self._table.refuse(model.title, ticket, 429, reason, self._retry_after(model))
        elif deadline <= now:
            self._refuse_late(model, ticket)
        else:
            is_first = not model.is_wanted
            self._table.enqueue(model, ticket, now, loads=loads)
            if deadline < math.inf:
                self._set_deadline(ticket, deadline)
            if is_first:  # otherwise nothing has changed for the allocator
                return self._settled(now)
        return self._table.take_effects()

    def leave(self, ticket: int, now: float) -> list[Effect]:
        """Note that the client of a waiting request has left. A ticket that does not wait is ignored."""
        model = self._table.tickets.get(ticket)
        if model is None:
            return []
        since = model.since
        self._table.forget(ticket)
        if model.is_wanted and model.since == since:  # nothing has changed for the allocator
            return []
        self._stop_unneeded(model)
        return self._settled(now)

    def join(self, name: str) -> None:
        """Note that something goes on beside an admitted request of the model; done() ends it, too."""
        self._models[name].n_active += 1

    def done(self, name: str, now: float) -> list[Effect]:
        """Note that an admitted request has ended."""
        model = self._models.get(name)
        if model is None or not model.n_active:
            return []
        model.n_active -= 1
        model.used_at = now
        if model.n_active:
            return []
        if model.state is State.DRAINING and not model.is_victim and model.leaving is not None:
            self._table.stop(model, model.leaving)
        return self._settled(now)

    # The operator.

    def load(self, name: str, now: float) -> list[Effect]:
        model = self._models[name]
        model.retry_at = -math.inf
        if model.state is State.DRAINING and model.leaving == "unloaded":
            self._table.undrain(model, now)
        if model.state is not State.LOADED and model.asked_at is None:
            model.asked_at = now
        return self._settled(now)

    def unload(self, name: str, now: float) -> list[Effect]:
        """Let running requests finish, then stop the model. Requests that wait for it are refused."""
        model = self._models[name]
        reason = f"the model '{model.title}' was unloaded while the request waited"
        self._table.refuse_all(model, 503, reason, 1.0)
        self._leave(model, "unloaded")
        return self._settled(now)

    def _leave(self, model: Model, reason: StopReason) -> None:
        """Let a model go: at once if none of its requests runs, else when the last one has ended."""
        model.failure = ""
        model.retry_at = -math.inf
        model.n_failures = 0
        model.is_refit = model.has_refitted = False
        model.refit_victim = None
        if model.state in RESTING:
            model.rest = State.UNLOADED
            self._table.end(model)
        elif model.state is State.STOPPING:
            model.rest = State.UNLOADED
        elif model.n_active:
            self._table.drain(model, reason)
        else:
            self._table.stop(model, reason)

    # News of engines.

    def planned(
        self, name: str, need: Mapping[str, int], capacity: Mapping[str, int], now: float
    ) -> list[Effect]:
        """Note what a model needs, and what all engines together could have. It may be repeated while it waits."""
        self.ledger.observe(capacity)
        model = self._models.get(name)
        if model is not None and model.state in (State.PLANNING, State.WAITING):
            self._table.plan(model, need)
        return self._settled(now)

    def delayed(self, name: str, now: float) -> list[Effect]:
        """Note that a model cannot plan yet: its files are downloaded first, or a worker is awaited."""
        model = self._models.get(name)
        if model is not None and model.state is State.PLANNING:
            model.is_delayed = True
        return self._settled(now)

    def loaded(self, name: str, measured: Mapping[str, int], now: float, seconds: float) -> list[Effect]:
        """Note that a model serves, `seconds` after it was let to load; also after a crash."""
        model = self._models.get(name)
        if model is None or model.state not in (State.LOADING, State.DRAINING):
            return []
        self._expire(now)
        is_first = model.loaded_at == -math.inf
        model.reload_seconds = seconds if is_first else (model.reload_seconds + seconds) / 2.0
        self._table.serve(model, measured, now)
        return self._settled(now)

    def failed(self, name: str, reason: str, now: float, *, is_memory: bool = False) -> list[Effect]:
        """Note that a load failed, or that an engine has ended for good. Its process has ended, and its memory is seen
        free. A load that ran out of memory is tried once more, after an eviction; a plan for too little memory is not,
        because it does not depend on which models are loaded."""
        model = self._models.get(name)
        if model is None or model.state in RESTING or model.state is State.STOPPING:
            return []
        if model.state is State.DRAINING and not model.is_victim:
            self._table.refuse_bound(model)
            self._table.end(model)
        elif is_memory and model.state is not State.PLANNING and model.is_wanted and not model.has_refitted:
            self._refit(model, now)
        else:
            self._table.fail(model, reason, now)
        return self._settled(now)

    def _refit(self, model: Model, now: float) -> None:
        self._table.end(model)
        victim = self._allocator.refit_victim(model, now)
        if victim is not None:
            self._table.stop(victim, "evicted")
            model.refit_victim = victim.name
        model.has_refitted = model.is_refit = True
        model.need = None

    def stopped(self, name: str, now: float) -> list[Effect]:
        """Note that a Stop was carried out."""
        model = self._models.get(name)
        if model is not None and model.state is State.STOPPING:
            self._table.end(model)
            for other in self._models.values():
                if other.refit_victim == name:
                    other.refit_victim = None
        return self._settled(now)

    def crashed(self, name: str, now: float) -> list[Effect]:
        """Note that an engine died and that its host starts it again: loaded() or failed() follows."""
        model = self._models.get(name)
        if model is not None and model.state in (State.LOADING, State.LOADED, State.DRAINING):
            self._table.crash(model)
        return self._settled(now)

    # Time.

    def tick(self, now: float) -> list[Effect]:
        for model in list(self._models.values()):
            if now >= self._sleeps_at(model):
                self._table.stop(model, "slept")
        return self._settled(now)

    def next_tick(self, now: float) -> float | None:
        """Return when tick() must be called if nothing happens until then, or None if it need not be called."""
        while self._deadlines and self._deadlines[0][1] not in self._table.tickets:
            heapq.heappop(self._deadlines)
        times = [self._deadlines[0][0]] if self._deadlines else []
        times += [self._sleeps_at(model) for model in self._models.values()]
        if any(model.is_victim and model.is_pinned for model in self._models.values()):
            times.append(now)  # it was pinned while it drained
        # The times after which the allocator decides otherwise. Those that it knew of already are past.
        turns = []
        queue = self._allocator.queue()
        for model in queue:
            turns.append(model.since + self._limits.wait_seconds)
            if model.state is State.PLANNING and not model.is_delayed:
                turns.append(model.started_at + self._limits.wait_seconds)
        if queue:
            stays_until = self._allocator.stays_until
            for model in self._models.values():
                turns.append(stays_until(model, is_late=True))
                if self._allocator.is_ready(model):
                    turns.append(stays_until(model, is_late=False))
        times += [time for time in turns if time > self._ran_at]
        time = min(times, default=math.inf)
        return None if time == math.inf else max(time, now)

    def _sleeps_at(self, model: Model) -> float:
        seconds = self.idle_limit(model.name)
        if model.state is not State.LOADED or model.n_active or seconds < 0.0:
            return math.inf
        return model.idle_since + seconds

    def _set_deadline(self, ticket: int, deadline: float) -> None:
        if len(self._deadlines) > 2 * len(self._table.tickets) + 64:
            self._deadlines = [one for one in self._deadlines if one[1] in self._table.tickets]
            heapq.heapify(self._deadlines)
        heapq.heappush(self._deadlines, (deadline, ticket))

    def _expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            ticket = heapq.heappop(self._deadlines)[1]
            model = self._table.tickets.get(ticket)
            if model is not None:
                self._refuse_late(model, ticket)
                self._stop_unneeded(model)

    def _refuse_late(self, model: Model, ticket: int) -> None:
        reason = (
            f"the model '{model.title}' was not loaded before the request's deadline; it is {model.state}"
        )
        self._table.refuse(model.title, ticket, 503, reason, self._retry_after(model))

    def _retry_after(self, model: Model) -> float:
        """Return a guess of the seconds until the model serves."""
        is_on_its_way = model.state in (State.LOADING, State.PLANNING)
        return model.reload_seconds + (0.0 if is_on_its_way else self._limits.wait_seconds)

    def _stop_unneeded(self, model: Model) -> None:
        """Stop an engine that does not load yet if nobody waits for it any more."""
        if model.state in (State.PLANNING, State.WAITING) and not model.is_wanted:
            self._table.stop(model, "unneeded")

    def _settled(self, now: float) -> list[Effect]:
        """Let the allocator act on what has changed, and return all effects."""
        self._expire(now)
        self._allocator.run(now)
        self._ran_at = now
        return self._table.take_effects()

    # Questions of endpoints and metrics.

    @property
    def counters(self) -> Counters:
        return self._table.counters

    def names(self) -> list[str]:
        """Return the names of all models, in order."""
        return sorted(self._models)

    def title(self, name: str) -> str:
        return self._models[name].title

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def state(self, name: str) -> State:
        return self._models[name].state

    def is_unloading(self, name: str) -> bool:
        """Return whether a model finishes its requests, because the operator unloads it."""
        model = self._models[name]
        return model.state is State.DRAINING and model.leaving == "unloaded"

    def waiting(self, name: str) -> int:
        return len(self._models[name].waiters)

    def active(self, name: str) -> int:
        return self._models[name].n_active

    def reason(self, name: str) -> str:
        """Return why the last load failed, or an empty text."""
        return self._models[name].failure
