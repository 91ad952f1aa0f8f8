"""A simulated world around a scheduler: engines that plan, load, fail, crash and stop after random times, requests of
random length, clients that leave, and an operator who does everything at the wrong moment.

It keeps books of its own, and rules.py compares them with what the scheduler does after every event.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass, field

from llamad.models.fleet.effects import Admit, Limits, Proceed, Refit, Refuse, Start, Stop
from llamad.models.fleet.model import COUNTED
from llamad.models.fleet.scheduler import Scheduler
from support.fleet.rules import Rules

PLAN, DELAY, LOAD, STOP, CRASH, REQUEST, OVERLONG = (
    1.0,
    50.0,
    6.0,
    2.0,
    4.0,
    8.0,
    40.0,
)  # the longest, in seconds
DEVICES = ("CUDA0", "CUDA1", "host")


@dataclass
class Engine:
    """The world's own books of one model."""

    name: str
    need: dict[str, int]
    is_pinned: bool
    sleep_seconds: float
    process: str = "none"  # none, planning, planned, loading, serving, crashed, stopping
    is_delayed: bool = False  # it has no slot until it loads
    n_process: int = 0  # news of earlier processes are dropped
    plan: dict[str, int] | None = None  # the last one
    held: dict[str, int] = field(default_factory=dict)
    active: set[int] = field(default_factory=set)
    waiting: dict[int, float] = field(default_factory=dict)  # ticket: arrival
    bound: set[int] = field(default_factory=set)  # tickets for which it must not be loaded
    asked_at: float = math.inf
    loaded_at: float = -math.inf
    idle_since: float = -math.inf
    is_unloading: bool = False
    is_removed: bool = False
    refits: int = 0

    @property
    def since(self) -> float:
        return min([self.asked_at, *self.waiting.values()])


class World:
    def __init__(self, seed: int, *, n_models: int = 0, **limits) -> None:
        self.random = random.Random(seed)
        choice, randint = self.random.choice, self.random.randint
        self.now = 1000.0
        self.limits = Limits(
            models_max=limits.get("models_max", choice([0, 0, 1, 2, 3, 5])),
            wait_seconds=limits.get("wait_seconds", choice([1.0, 5.0, 30.0])),
            queue_max=limits.get("queue_max", choice([2, 5, 50])),
            residence_seconds=choice([0.0, 2.0, 5.0]),
        )
        self.memory_max = choice([0, 0, 80])
        self.devices = DEVICES[: randint(1, 3)]
        self.capacity = {device: randint(50, 100) for device in self.devices}
        self.scheduler = Scheduler(self.limits, self.memory_max)
        self.engines: dict[str, Engine] = {}
        for i in range(n_models or randint(2, 8)):
            self._add(f"m{i}")
        self.trouble = choice([0.0, 0.05, 0.2])
        self.tickets: dict[int, Engine] = {}
        self.deadlines: dict[int, float] = {}
        self.n_tickets = 0
        self.n_events = 0
        self._heap: list[tuple[float, int, object]] = []
        self._n_queued = 0
        self.rules = Rules(self)

    def limit(self, device: str) -> int:
        return min(self.capacity[device], self.memory_max or 1 << 62)

    def _add(self, name: str) -> None:
        devices = self.random.sample(self.devices, self.random.randint(1, len(self.devices)))
        need = {device: self.random.choice([5, 20, 35, 60]) for device in devices}
        sleep_seconds = self.random.choice([-1.0, -1.0, 3.0])
        engine = Engine(name, need, self.random.random() < 0.1, sleep_seconds)
        self.engines[name] = engine
        self.scheduler.add(name, is_pinned=engine.is_pinned, sleep_seconds=sleep_seconds)

    # Time.

    def at(self, seconds: float, action) -> None:
        self._n_queued += 1
        heapq.heappush(self._heap, (self.now + seconds, self._n_queued, action))

    def run(self, until: float = math.inf) -> None:
        """Let time pass until nothing happens any more."""
        while True:
            tick = self.scheduler.next_tick(self.now)
            if tick is not None and self.random.random() < 0.1:
                tick += self.random.uniform(0.0, 0.5)  # the event loop was busy
            time = min(self._heap[0][0] if self._heap else math.inf, math.inf if tick is None else tick)
            if time > until or time == math.inf:
                return
            self.now = time
            if tick is not None and tick <= time:
                self.event("tick")
            else:
                heapq.heappop(self._heap)[2]()

    def event(self, name: str, *args, **kwargs) -> None:
        """Pass one event on to the scheduler, and carry out what it returns."""
        self.n_events += 1
        failures = self.scheduler.counters.failures.copy()
        effects = getattr(self.scheduler, name)(*args, self.now, **kwargs)
        self.rules.before(effects)
        for effect in effects:
            self._carry_out(effect)
        for engine in self.engines.values():
            if self.scheduler.counters.failures[engine.name] > failures[engine.name]:
                engine.refits = 0  # it was given up; its next load begins anew
        self.rules.after(name, effects)

    # Effects.

    def _carry_out(self, effect) -> None:
        if isinstance(effect, Admit):
            engine = self.rules.admitted(effect.ticket)
            engine.active.add(effect.ticket)
            seconds = OVERLONG if self.random.random() < 0.02 else self.random.uniform(0.1, REQUEST)
            self.at(seconds, lambda: self._done(engine, effect.ticket))
        elif isinstance(effect, Refuse):
            self.rules.refused(effect)
        else:
            engine = self.engines[effect.model]
            if isinstance(effect, Start | Refit):
                self.rules.started(engine, effect)
                engine.process = "planning"
                engine.n_process += 1
                self._later(engine, PLAN, self._delay if self.random.random() < self.trouble else self._plan)
            elif isinstance(effect, Proceed):
                self.rules.proceeded(engine)
                engine.process = "loading"
                engine.is_delayed = False
                engine.held = dict(engine.plan)
                self._later(engine, LOAD, self._load)
            elif isinstance(effect, Stop):
                self.rules.stopped(engine, effect.reason)
                engine.process = "stopping"
                self._later(engine, STOP, self._stopped, is_end=True)

    def _later(self, engine: Engine, seconds: float, action, is_end=False) -> None:
        n = engine.n_process

        def news() -> None:
            if n == engine.n_process and (
                is_end or engine.process != "stopping" or self.random.random() < 0.5
            ):
                action(engine)

        self.at(self.random.uniform(0.05, seconds), news)

    def _delay(self, engine: Engine) -> None:
        engine.is_delayed = engine.process == "planning"
        self._later(engine, DELAY, self._plan)
        self.event("delayed", engine.name)

    def _plan(self, engine: Engine) -> None:
        if self.random.random() < self.trouble:
            self._failed(engine, is_memory=self.random.random() < 0.5)
            return
        if engine.process == "planning":
            engine.process = "planned"
            engine.plan = dict(engine.need)
        self.event("planned", engine.name, engine.need, self.capacity)

    def _load(self, engine: Engine) -> None:
        if self.random.random() < self.trouble:
            if engine.process == "loading" and self.random.random() < 0.3:
                self._crash(engine)
            else:
                self._failed(engine, is_memory=self.random.random() < 0.5)
            return
        measured = dict(engine.held)
        if self.random.random() < self.trouble:
            measured = {device: max(0, n + self.random.randint(-4, 4)) for device, n in measured.items()}
        if engine.process in ("loading", "crashed"):
            engine.process = "serving"
            engine.held = measured
            engine.loaded_at = self.now
            engine.idle_since = max(engine.idle_since, self.now)
            engine.refits = 0
            if not engine.is_unloading and self.random.random() < self.trouble:
                self._later(engine, 30.0, self._crash)
        self.event("loaded", engine.name, measured, seconds=LOAD)

    def _crash(self, engine: Engine) -> None:
        if engine.process in ("serving", "loading"):
            engine.process = "crashed"
            self._later(engine, CRASH, self._load)
        self.event("crashed", engine.name)

    def _failed(self, engine: Engine, is_memory: bool) -> None:
        tickets = sorted(engine.active)
        n_first = self.random.randint(0, len(tickets))
        for ticket in tickets[:n_first]:
            self._done(engine, ticket)
        if engine.process != "stopping":
            # One that the operator unloads is not tried again.
            engine.refits += is_memory and engine.process != "planning" and not engine.is_unloading
            self._ended(engine)
        self.rules.n_spare_victims = int(is_memory)
        self.event("failed", engine.name, "trouble", is_memory=is_memory)
        for ticket in tickets[n_first:]:
            self._done(engine, ticket)

    def _stopped(self, engine: Engine) -> None:
        self._ended(engine)
        self.event("stopped", engine.name)

    def _ended(self, engine: Engine) -> None:
        engine.process = "none"
        engine.is_delayed = False
        engine.n_process += 1
        engine.held = {}
        engine.is_unloading = False
        if engine.is_removed:
            self._forget(engine)

    def _forget(self, engine: Engine) -> None:
        """Take a removed model's books away, and add it again a while later."""
        del self.engines[engine.name]
        self.at(self.random.uniform(0.1, 10.0), lambda: self._add(engine.name))

    # Clients.

    def ask(self) -> None:
        """Let a request come for a random model; the first ones are more popular."""
        names = list(self.engines) or ["m0"]
        name = self.random.choice(names[: self.random.randint(1, len(names))])
        self.n_tickets += 1
        ticket = self.n_tickets
        engine = self.engines.get(name)
        if engine is None:
            return
        self.tickets[ticket] = engine
        engine.waiting[ticket] = self.now
        deadline = math.inf
        if self.random.random() < 0.1:
            deadline = self.now + self.random.uniform(0.0, 20.0)
        self.deadlines[ticket] = deadline
        if self.random.random() < 0.1:
            self.at(self.random.uniform(0.0, 20.0), lambda: self._leave(ticket))
        loads = self.scheduler.state(name) not in COUNTED or self.random.random() > 0.1
        if not loads:
            engine.bound.add(ticket)
        self.event("request", name, ticket, deadline=deadline, loads=loads)

    def _leave(self, ticket: int) -> None:
        engine = self.tickets[ticket]
        if ticket in engine.waiting:
            del engine.waiting[ticket]
            self.event("leave", ticket)

    def _done(self, engine: Engine, ticket: int) -> None:
        if ticket in engine.active:
            engine.active.discard(ticket)
            engine.idle_since = self.now
            self.event("done", engine.name)

    # The operator.

    def meddle(self) -> None:
        if not self.engines:
            return
        engine = self.random.choice(list(self.engines.values()))
        action = self.random.choice(["load", "unload", "unload", "remove", "pin"])
        if engine.is_removed:
            return
        if action == "pin":
            engine.is_pinned = not engine.is_pinned and self.random.random() < 0.3
            self.scheduler.add(engine.name, is_pinned=engine.is_pinned, sleep_seconds=engine.sleep_seconds)
            self.event("tick")
            return
        if action == "load":
            if self.scheduler.state(engine.name) != "loaded":
                engine.asked_at = min(engine.asked_at, self.now)
            if engine.process in ("serving", "crashed") and engine.is_unloading:
                engine.is_unloading = False
        else:
            engine.refits = 0
            engine.is_unloading = engine.process in ("serving", "crashed")
            engine.asked_at = math.inf
            engine.is_removed = action == "remove"
            if engine.is_removed and engine.process == "none":
                del self.engines[engine.name]
                self.at(self.random.uniform(0.1, 10.0), lambda: self._add(engine.name))
        self.event(action, engine.name)
