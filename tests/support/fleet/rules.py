"""The rules that the scheduler must keep, checked after every event against the books of a simulated world."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from llamad.models.fleet.effects import Refit, Refuse

if TYPE_CHECKING:
    from support.fleet.world import Engine, World

SLOTS = "slots"


class Rules:
    def __init__(self, world: World) -> None:
        self.world = world
        self.waits: list[float] = []
        self.victims: list[Engine] = []
        self.n_spare_victims = 0  # a refit evicts one model without a need that can be named
        self.states: dict[str, str] = {}
        self.n_ends: Counter[str] = Counter()
        self.n_evictions = self.n_drains = 0

    # What the world asks.

    def free(self, device: str) -> int:
        """Return what is free now and what is certain to be free soon."""
        engines = self.world.engines.values()
        if device == SLOTS:
            n = sum(
                engine.process not in ("none", "stopping") and not engine.is_delayed for engine in engines
            )
            return (self.world.limits.models_max or 1 << 62) - n
        used = sum(engine.held.get(device, 0) for engine in engines)
        stopping = sum(engine.held.get(device, 0) for engine in engines if engine.process == "stopping")
        return self.world.limit(device) - used + stopping

    def is_late(self, engine: Engine) -> bool:
        return self.world.now >= engine.since + self.world.limits.wait_seconds

    def needs(self, device: str, engines: list[Engine]) -> int:
        """Return what models that somebody waits for still need."""
        total = 0
        for engine in engines:
            if engine.since == math.inf or engine.process in ("loading", "serving", "crashed"):
                continue
            if device == SLOTS:
                total += engine.process in ("none", "stopping") or engine.is_delayed
            else:
                total += (engine.plan or {}).get(device, 0)
        return total

    def _has_slot_in_sight(self, engine: Engine) -> bool:
        """Return whether there is a slot for a model that has planned without one. Otherwise it must not keep memory
        from a younger model that has a slot."""
        older = [one for one in self.world.engines.values() if one.since <= engine.since]
        return self.free(SLOTS) >= self.needs(SLOTS, older)

    # Effects.

    def before(self, effects) -> None:
        self.victims = []

    def admitted(self, ticket: int) -> Engine:
        engine = self.world.tickets[ticket]
        assert ticket in engine.waiting, "admitted, but it does not wait"
        assert engine.process == "serving", f"admitted to a model that is {engine.process}"
        assert not engine.is_unloading, "admitted to a model that the operator unloads"
        assert self.world.deadlines[ticket] > self.world.now, "admitted after its deadline"
        self.waits.append(self.world.now - engine.waiting.pop(ticket))
        return engine

    def refused(self, effect: Refuse) -> None:
        engine = self.world.tickets[effect.ticket]
        assert effect.ticket in engine.waiting, "refused, but it does not wait"
        assert effect.reason
        if effect.status == 429:
            assert len(engine.waiting) > self.world.limits.queue_max
        if effect.status == 404:
            assert engine.is_removed
        elif effect.status == 400:
            assert effect.ticket in engine.bound
            assert self.states[engine.name] == "draining", "refused by a model that was not about to leave"
        else:
            assert effect.retry_after >= 1
        self.waits.append(self.world.now - engine.waiting.pop(effect.ticket))

    def started(self, engine: Engine, effect) -> None:
        assert engine.process == "none"
        assert engine.since < math.inf, "started, but nobody waits for it"
        if isinstance(effect, Refit):
            assert engine.refits == 1
        else:
            is_asked = engine.asked_at < math.inf or not engine.waiting.keys() <= engine.bound
            assert is_asked, "started only for requests that must not load a model"

    def proceeded(self, engine: Engine) -> None:
        assert engine.process == "planned"
        older = [
            one
            for one in self.world.engines.values()
            if one.since < engine.since
            and one.process == "planned"
            and (not one.is_delayed or self._has_slot_in_sight(one))
        ]
        for device, n in engine.plan.items():
            used = sum(one.held.get(device, 0) for one in self.world.engines.values())
            assert used + n <= self.world.limit(device), "more is reserved than there is"
            assert not older or self.free(device) - n >= self.needs(device, older), (
                "an older waiter is delayed"
            )

    def stopped(self, engine: Engine, reason: str) -> None:
        now, limits = self.world.now, self.world.limits
        assert engine.process not in ("none", "stopping")
        if engine.process in ("serving", "crashed"):
            assert not engine.active, "a busy model is stopped"
        if reason in ("evicted", "count"):
            assert not engine.is_pinned, "a pinned model is evicted"
            if engine.process == "crashed":
                assert self.states[engine.name] == "draining"
            elif engine.process != "serving":
                assert engine.since == math.inf, "a model is evicted while somebody waits for its load"
            late = any(self.is_late(one) for one in self.world.engines.values() if one is not engine)
            if engine.process == "serving":
                assert late or now >= engine.loaded_at + limits.residence_seconds, (
                    "evicted before its residence"
                )
            self.victims.append(engine)
            self.n_evictions += 1
        elif reason == "slept":
            assert engine.since == math.inf
            assert engine.sleep_seconds >= 0.0
            assert now >= engine.idle_since + engine.sleep_seconds
        elif reason == "unneeded":
            assert engine.process in ("planning", "planned")
            assert engine.since == math.inf
        elif reason == "failed":
            assert engine.process == "planned"
        else:
            assert reason in ("unloaded", "reloaded", "removed")

    # The state after an event.

    def after(self, event: str, effects) -> None:
        world = self.world
        scheduler = world.scheduler
        for engine in world.engines.values():
            state = scheduler.state(engine.name)
            self._check_asked(engine, event)
            assert (
                scheduler.waiting(engine.name) == len(engine.waiting) <= (world.limits.queue_max or math.inf)
            )
            assert scheduler.active(engine.name) == len(engine.active)
            assert dict(scheduler.ledger.of(engine.name)) == {k: n for k, n in engine.held.items() if n > 0}
            if engine.process in ("planning", "planned"):
                assert engine.since < math.inf, "an engine plans for nobody"
            if state == "loaded":
                assert engine.process == "serving"
                assert not engine.waiting, "somebody waits for a loaded model"
        self.n_ends = self._n_ends()
        self.states = {name: str(scheduler.state(name)) for name in world.engines}
        for device in world.devices:
            used = sum(engine.held.get(device, 0) for engine in world.engines.values())
            assert scheduler.ledger.used(device) == used >= 0
        assert self.free(SLOTS) >= 0, "more models than --models-max"
        self._check_victims()
        self._check_drains()

    def _n_ends(self) -> Counter[str]:
        """Return how often the operator's wish for each model may have ended: it was loaded, it failed, or its drain
        was cancelled."""
        counters = self.world.scheduler.counters
        ends = counters.loads + counters.failures
        return Counter({name: ends[name] + counters.n_drains_cancelled for name in self.world.engines})

    def _check_asked(self, engine: Engine, event: str) -> None:
        """What the operator asked for has no ticket, so the scheduler is asked whether it is still wanted."""
        is_asked = self.world.scheduler._models[engine.name].asked_at is not None
        if not is_asked and engine.asked_at < math.inf:
            state = self.world.scheduler.state(engine.name)
            # A load that cancels an unload is carried out at once; the model may become a victim in the same event.
            assert (
                state == "loaded" or event == "load" or self._n_ends()[engine.name] > self.n_ends[engine.name]
            )
            engine.asked_at = math.inf

    def _check_victims(self) -> None:
        """Without any one victim of this event, somebody would miss something: no two victims for one need."""
        engines = list(self.world.engines.values())
        n_spare = 0
        for victim in self.victims:
            n_spare += all(
                self.free(device) - n >= self.needs(device, engines)
                for device, n in {SLOTS: 1, **victim.held}.items()
                if n
            )
        assert n_spare <= self.n_spare_victims, "a model was evicted that nobody needs to go"
        self.n_spare_victims = 0

    def _check_drains(self) -> None:
        """Every model that drains for others is needed by somebody who has waited too long."""
        engines = list(self.world.engines.values())
        leaving = [one for one in engines if self.world.scheduler.state(one.name) == "draining"]
        victims = [one for one in leaving if not one.is_unloading]
        late = [one for one in engines if self.is_late(one) and one not in leaving]
        for victim in victims:
            assert not victim.is_pinned, "a pinned model drains for others"
            self.n_drains += 1
            held = {SLOTS: 1, **victim.held}
            soon = {
                device: self.free(device)
                + sum({SLOTS: 1, **one.held}.get(device, 0) for one in leaving if one is not victim)
                for device in held
            }
            assert any(n < self.needs(device, late) for device, n in soon.items()), (
                "a model drains for nobody"
            )
