"""Decides who gets memory next, and who makes room for it.

Pure; the scheduler runs a pass after each event that may change the answer. A pass walks over the models that somebody
waits for, in the order of their oldest waiters. Each takes what it needs or claims it, and a claim comes before
everything that younger ones take: they may go first only on devices where no older claim is short.

A victim is stopped only together with all others that its need takes, when all of them are idle. Until then a drain can
be cancelled, so a client that leaves costs nothing. Each need chooses its victims for itself, so at the end of a pass
those are kept that the victims of other needs have made unnecessary.
"""

from __future__ import annotations

from collections.abc import Mapping

from llamad.models.fleet.effects import StopReason
from llamad.models.fleet.model import RESTING, Model, State
from llamad.models.fleet.room import ONE_SLOT, SLOTS, Room
from llamad.models.fleet.transitions import Table
from llamad.models.fleet.victims import Candidate, choose, cost


class Allocator:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._limits = table.limits
        self._ledger = table.ledger
        # The victims of the running pass that are to stop.
        self._chosen: dict[str, tuple[Candidate, StopReason]] = {}

    def queue(self) -> list[Model]:
        """Return the models that somebody waits for and that have or need a place in the queue for memory, the one with
        the oldest waiter first."""
        queued = [
            model
            for model in self._table.models.values()
            if model.is_wanted and (model.state in RESTING or model.state in _QUEUED)
        ]
        queued.sort(key=lambda model: (model.since, model.name))
        return queued

    def is_late(self, model: Model, now: float) -> bool:
        """Return whether the oldest waiter has waited so long that busy models must make room."""
        return now >= model.since + self._limits.wait_seconds

    def run(self, now: float) -> None:
        victims = [model for model in self._table.models.values() if model.is_victim]
        for victim in victims:
            if victim.is_pinned:  # it was pinned while it drained
                self._table.undrain(victim, now)
        queue = self.queue()
        if not queue and not victims:
            return
        room = Room(self._table)
        n_planning = n_planned = 0
        is_held = False  # an older model is about to say what it needs
        for model in queue:
            if model.state is State.STOPPING:
                self._claim(model, self._whole_need(model), room, now)
                continue
            if model.state in RESTING:
                has_place = (
                    n_planning < self._limits.n_planning_max and n_planned < self._limits.n_planned_max
                )
                if not has_place or not self._start(model, room, now, can_evict=not is_held):
                    if model.is_wanted:  # it has not failed
                        self._claim(model, self._whole_need(model), room, now)
                    continue
            is_slow = model.state is State.PLANNING and self._is_slow(model, now)
            n_planning += model.state is State.PLANNING and not is_slow
            n_planned += not is_slow
            if is_slow and model.is_delayed:
                continue
            need = self._known_need(model)
            if need is None:
                is_held = is_held or not is_slow
            elif is_held:
                room.claim(need, self.is_late(model, now))
            else:
                self._load(model, need, room, now)
        self._stop_chosen(room)
        self._cancel_drains(room, now)

    def _is_slow(self, model: Model, now: float) -> bool:
        """Return whether others should not wait for the plan of a model."""
        return model.is_delayed or now >= model.started_at + self._limits.wait_seconds

    # The two steps of a model on its way up.

    def _start(self, model: Model, room: Room, now: float, can_evict: bool) -> bool:
        """Start the process of a model if it can have a slot, and return whether it was started."""
        if reason := self._why_no_slot(model):
            self._table.fail(model, reason, now)
        if not model.is_wanted or model.refit_victim is not None:
            return False
        if can_evict and not room.can_take(ONE_SLOT):
            self._make_room(model, self._whole_need(model), room, now)
        if not room.can_take(ONE_SLOT):
            return False
        room.take(ONE_SLOT)
        self._table.start(model, now)
        return True

    def _load(self, model: Model, need: Mapping[str, int], room: Room, now: float) -> None:
        """Let a planned model load if there is memory, and make room for it if not. A model that still plans makes room
        for what it needed the last time."""
        is_planned = model.state is State.WAITING
        if is_planned and (reason := self._why_never(model, need) or self._why_no_slot(model)):
            room.stops(model)
            self._table.fail(model, reason, now)
            return
        if model.is_delayed:
            need = {**ONE_SLOT, **need}
        self._make_room(model, need, room, now)
        if is_planned and room.can_take(need):
            room.take(need)
            self._table.proceed(model)
        else:
            self._claim(model, need, room, now)

    def _known_need(self, model: Model) -> Mapping[str, int] | None:
        """Return the memory that a model has planned; until then what it needed the last time, if that can still be."""
        if model.need is None or (model.state is not State.WAITING and self._why_never(model, model.need)):
            return None
        return model.need

    def _whole_need(self, model: Model) -> Mapping[str, int]:
        """Return the slot of a model that has no process, and its memory if that is known: victims that free both are
        better than one for each."""
        return {**ONE_SLOT, **(self._known_need(model) or {})}

    def _claim(self, model: Model, need: Mapping[str, int], room: Room, now: float) -> None:
        """Claim what a model needs. If it needs a slot and none is in sight, it claims no memory: the slots may be held
        by younger models that wait for that memory."""
        if SLOTS in need and room.missing(ONE_SLOT, with_leaving=True, with_draining=True) != {}:
            need = ONE_SLOT
        room.claim(need, self.is_late(model, now))

    # Victims.

    def _make_room(self, model: Model, need: Mapping[str, int], room: Room, now: float) -> None:
        is_late = self.is_late(model, now)
        # What leaves anyway is awaited as long as a busy model would be.
        missing = room.missing(need, with_leaving=not is_late, with_draining=False)
        if not missing:
            return
        ready = self._ready(room, now, is_late)
        if chosen := choose(ready, missing):
            for candidate in chosen:
                victim = self._table.models[candidate.name]
                if victim.is_victim:
                    room.drains_no_more(victim)
                room.stops(victim)
                self._chosen[victim.name] = candidate, _reason(missing)
            return
        if not is_late:
            return
        missing = room.missing(need, with_leaving=True, with_draining=True)
        if not missing:
            return
        can_drain = [
            one
            for one in self._table.models.values()
            if one.state is State.LOADED
            and not one.is_pinned
            and one.name not in self._chosen
            and now >= self.stays_until(one, is_late=True)
        ]
        if chosen := choose([self._candidate(one, room, now) for one in can_drain], missing):
            for candidate in chosen:
                victim = self._table.models[candidate.name]
                self._table.drain(victim, _reason(missing))
                room.drains(victim)

    def _stop_chosen(self, room: Room) -> None:
        """Stop the victims of this pass, but keep those, the dearest first, without which all needs are still met: an
        older waiter may have chosen a small model before a younger one chose a model that is large enough for both."""
        for candidate, reason in sorted(self._chosen.values(), key=lambda one: (-one[0].cost, one[0].name)):
            victim = self._table.models[candidate.name]
            if room.can_keep(victim):
                room.stops_not(victim)
                if victim.is_victim:
                    room.drains(victim)
            else:
                self._table.stop(victim, reason)
        self._chosen.clear()

    def _ready(self, room: Room, now: float, is_late: bool) -> list[Candidate]:
        return [
            self._candidate(model, room, now)
            for model in self._table.models.values()
            if self.is_ready(model)
            and model.name not in self._chosen
            and (model.is_victim or now >= self.stays_until(model, is_late))
        ]

    def is_ready(self, model: Model) -> bool:
        """Return whether stopping the model now would cut no request and lose nothing that somebody waits for."""
        if model.n_active or model.is_pinned:
            return False
        if model.state is State.LOADING:
            return not model.is_wanted and not model.is_crashed
        return model.state is State.LOADED or model.is_victim

    def stays_until(self, model: Model, is_late: bool) -> float:
        """Return the end of the minimum residence, which is shorter if the waiter is late."""
        limits = self._limits
        if model.state is not State.LOADED or not limits.residence_seconds:
            return 0.0
        seconds = min(model.reload_seconds, limits.wait_seconds)
        return model.loaded_at + (seconds if is_late else max(limits.residence_seconds, seconds))

    def _candidate(self, model: Model, room: Room, now: float) -> Candidate:
        idle_seconds = 0.0 if model.n_active else now - model.idle_since
        # A victim that has drained has paid already.
        n = 0.0 if model.is_victim else cost(model.reload_seconds, idle_seconds) * (1 + model.n_active)
        return Candidate(model.name, n, room.held(model))

    def _cancel_drains(self, room: Room, now: float) -> None:
        """Let victims serve again that nobody who is late needs any more. The dearest come first."""
        victims = [model for model in self._table.models.values() if model.is_victim]
        victims.sort(key=lambda model: (-model.reload_seconds, model.name))
        for victim in victims:
            if room.is_spare(victim):
                room.drains_no_more(victim)
                self._table.undrain(victim, now)

    def refit_victim(self, model: Model, now: float) -> Model | None:
        """Return the cheapest idle model on the devices of one that ran out of memory."""
        if not model.need:
            return None
        room = Room(self._table)
        ready = self._ready(room, now, model.is_wanted and self.is_late(model, now))
        useful = [one for one in ready if model.need.keys() & one.frees.keys()]
        best = min(useful, key=lambda one: (one.cost, one.name), default=None)
        return None if best is None else self._table.models[best.name]

    # Needs that no eviction can meet.

    def _why_no_slot(self, model: Model) -> str:
        fixed = [one for one in self._table.models.values() if _is_fixed(one) and one.has_slot]
        pinned = [one.title for one in fixed if one is not model]
        if not self._limits.models_max or len(pinned) < self._limits.models_max:
            return ""
        return (
            f"--models-max allows {self._limits.models_max} models, and these are pinned: {_names(pinned)}. "
            "Raise --models-max, or unload one of them."
        )

    def _why_never(self, model: Model, need: Mapping[str, int]) -> str:
        """Return why a need cannot be met even if every model leaves that may; empty if it can."""
        for device, n in need.items():
            limit = self._ledger.limit(device)
            if n > limit:
                return (
                    f"the model needs {_mib(n)} on {device}, of which all models together may have {_mib(limit)}. "
                    "Choose a smaller context or fewer layers on the device, or raise --models-memory-max if it is set."
                )
            if n + self._ledger.used(device) <= limit:
                continue
            fixed = {
                one.title: self._ledger.of(one.name).get(device, 0)
                for one in self._table.models.values()
                if _is_fixed(one) and one is not model and self._ledger.of(one.name).get(device, 0)
            }
            if n > limit - sum(fixed.values()):
                return (
                    f"the model needs {_mib(n)} on {device}, of which all models together may have {_mib(limit)}, and "
                    f"pinned models hold {_mib(sum(fixed.values()))}: {_names(list(fixed))}. Unload one of them."
                )
        return ""


_QUEUED = frozenset({State.PLANNING, State.WAITING, State.STOPPING})


def _is_fixed(model: Model) -> bool:
    """Return whether a model has a process and is pinned, so that it stays until the operator unloads it."""
    return model.is_pinned and model.state not in RESTING and model.leaving is None


def _reason(missing: Mapping[str, int]) -> StopReason:
    return "count" if missing.keys() == {SLOTS} else "evicted"


def _names(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))


def _mib(n: int) -> str:
    return f"{-(-n // (1 << 20))} MiB"
