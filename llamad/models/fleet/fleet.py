"""Carries out what the scheduler decides about the engines of a daemon: starts and ends them, and lets requests go on.

Runs on the event loop, and is the only user of the scheduler. It knows hosts, not what they serve.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from llamad.models.fleet.effects import Admit, Effect, Proceed, Refit, Refuse, Start, Stop, StopReason
from llamad.models.fleet.model import COUNTED
from llamad.models.fleet.model import State as ModelState
from llamad.models.fleet.read_ahead import read_ahead
from llamad.models.fleet.scheduler import Scheduler
from llamad.models.fleet.shares import Shares
from llamad.models.host import Host
from llamad.models.host_state import State
from llamad.protocol.control_messages import Budget

log = logging.getLogger("llamad.models")

# A model that is to share the machine with others gets this part of the memory, if its size is free: two of them fit
# side by side.
SHARE_OF_SEVERAL = 0.5
# After a load that ran out of memory, the next one leaves so much of each device free. Chosen.
REFIT_SPARE_BYTES = 1 << 30
POLL_SECONDS = 0.05
_WHY: dict[StopReason, str] = {
    "evicted": "another model needs its memory",
    "count": "another model needs its place (--models-max)",
    "unloaded": "on request",
    "slept": "it was idle for --sleep-idle-seconds",
    "reloaded": "its settings have changed",
    "removed": "it is not in the list of models any more",
    "unneeded": "nobody waits for it any more",
    "failed": "it cannot be loaded",
}


class RefusedError(Exception):
    """A request cannot be served by its model now. `retry_after` is in seconds."""

    def __init__(self, status: int, reason: str, retry_after: int | None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


class Engine:
    """One engine of the fleet."""

    def __init__(self, id: str, host: Host, stop_seconds: float) -> None:
        self.id = id
        self.host = host
        self.stop_seconds = stop_seconds
        # Bytes that it must leave free on each device, because its last load ran out of memory.
        self.spare = 0
        self.is_pinned = False
        self.t_start = 0.0
        self.n_active = 0  # requests that were admitted and have not ended
        self.proceed: asyncio.Future[None] | None = None  # it has planned, and waits to load
        self.stopping: asyncio.Task[None] | None = None


class Fleet:
    """`changed` is called with an engine's id when its state has changed. `memory_max` limits all engines together, in
    bytes on each device; 0: no limit."""

    def __init__(self, scheduler: Scheduler, shares: Shares, memory_max: int = 0) -> None:
        self.scheduler = scheduler
        self._shares = shares
        self.changed: Callable[[str], None] | None = None
        self.progressed: Callable[[str], None] | None = None  # called when a load has made progress
        self.n_models = 1  # how many models there are, loaded or not
        self._memory_max = memory_max
        self._capacity: dict[str, int] = {}  # by device, from the last plans
        self._engines: dict[str, Engine] = {}
        self._tickets = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[None], Engine, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[Engine]:
        return iter(self._engines.values())

    def __getitem__(self, id: str) -> Engine:
        return self._engines[id]

    def __contains__(self, id: str) -> bool:
        return id in self._engines

    # Engines.

    def add(
        self, id: str, title: str, host: Host, *, is_pinned: bool, sleep_seconds: float, stop_seconds: float
    ) -> Engine:
        """Add an engine, which is not loaded until it is needed. `title` is the model's name in texts. An engine that
        is unloaded is killed after `stop_seconds`, if it has not ended by then."""
        engine = self._engines[id] = Engine(id, host, stop_seconds)
        host.label = title
        host.on_state.append(lambda _: self._on_state(engine))
        host.on_progress = lambda: self.progressed(id) if self.progressed is not None else None
        host.on_delayed = lambda: self._apply(self.scheduler.delayed(id, _now()))
        host.budget = lambda: self._budget(engine)
        host.on_planned = lambda need, capacity: self._on_planned(engine, need, capacity)
        engine.is_pinned = is_pinned
        self.scheduler.add(id, title=title, is_pinned=is_pinned, sleep_seconds=sleep_seconds)
        return engine

    def change(self, id: str, *, title: str, is_pinned: bool, sleep_seconds: float) -> None:
        """Change the settings of an engine that the fleet itself uses."""
        engine = self._engines[id]
        engine.host.label = title
        engine.is_pinned = is_pinned
        self.scheduler.add(id, title=title, is_pinned=is_pinned, sleep_seconds=sleep_seconds)
        self._apply(self.scheduler.tick(_now()))

    def keep(self, id: str, seconds: float) -> None:
        """Let an engine sleep no sooner than after so many idle seconds, until it stops."""
        self.scheduler.keep(id, seconds)

    def idle_limit(self, id: str) -> float:
        """Return after how many idle seconds an engine sleeps; negative: never."""
        return self.scheduler.idle_limit(id)

    async def remove(self, id: str, reason: StopReason) -> None:
        """Remove an engine as soon as its requests have ended, and return then."""
        engine = self._engines[id]
        engine.is_pinned = False  # whoever takes its place need not do with less memory
        self._apply(self.scheduler.remove(id, _now(), reason))
        while id in self.scheduler or engine.n_active:
            await asyncio.sleep(POLL_SECONDS)
        del self._engines[id]
        await engine.host.close()

    def load(self, id: str) -> None:
        self._apply(self.scheduler.load(id, _now()))

    def unload(self, id: str) -> None:
        """Unload a model as soon as its running requests have ended."""
        self._apply(self.scheduler.unload(id, _now()))
        host = self._engines[id].host
        if host.state is State.SLEEPING:  # also while its process ends
            self._spawn(asyncio.ensure_future(host.unload()))

    def is_running(self, id: str) -> bool:
        """Whether an engine serves, is about to, or sleeps."""
        return self.scheduler.state(id) in COUNTED or self._engines[id].host.state is State.SLEEPING

    def is_unloading(self, id: str) -> bool:
        """Whether an engine still serves, but is unloaded on request as soon as its requests have ended."""
        return self.scheduler.is_unloading(id)

    def failure(self, id: str) -> str:
        """Return why an engine cannot be loaded, or an empty text."""
        return self.scheduler.reason(id) if self.scheduler.state(id) is ModelState.FAILED else ""

    # Requests.

    def enter(
        self, id: str, name: str, deadline: float = float("inf"), *, loads: bool = True
    ) -> asyncio.Future[None] | None:
        """Count a request of a model, which has this name for its client. Return None if it may go on at once, else a
        future that says when. The future raises RefusedError; cancelling it withdraws the request. Every request that
        went on must call leave(). Without `loads` an engine that is about to leave is not started again for it."""
        if self._is_closed:
            raise RefusedError(503, "The server is shutting down", 5)
        ticket, engine = next(self._tickets), self._engines[id]
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future, engine, name
        effects = self.scheduler.request(id, ticket, _now(), deadline, loads=loads)
        # An admission only moves a sleep later, and the timer looks at every model.
        self._apply(effects, sets_timer=not (len(effects) == 1 and isinstance(effects[0], Admit)))
        if future.done() and future.exception() is None:
            return None
        future.add_done_callback(lambda one: self._withdraw(ticket) if one.cancelled() else None)
        return future

    def join(self, id: str) -> None:
        """Count something that goes on beside a request that was admitted, such as a stream without a client."""
        self._count(self._engines[id], 1)
        if id in self.scheduler:
            self.scheduler.join(id)

    def leave(self, id: str) -> None:
        """Note that a request that went on has ended."""
        engine = self._engines[id]
        self._count(engine, -1)
        # A sleep only moves later while others run.
        self._apply(self.scheduler.done(id, _now()), sets_timer=engine.n_active == 0)

    def _count(self, engine: Engine, n: int) -> None:
        """Change the number of an engine's requests."""
        engine.n_active += n
        if engine.n_active == 0 or (n > 0 and engine.n_active == 1):
            self._divide()

    def _divide(self) -> None:
        """Divide the machine again. A drain leaves it as it is."""
        if not self._is_closed:
            self._shares.divide(list(self._engines.values()))

    def _withdraw(self, ticket: int) -> None:
        if self._waiting.pop(ticket, None) is not None and not self._is_closed:
            self._apply(self.scheduler.leave(ticket, _now()))

    # Effects.

    def _apply(self, effects: Iterable[Effect], *, sets_timer: bool = True) -> None:
        if self._is_closed:
            return
        for effect in effects:
            match effect:
                case Start(model):
                    engine = self._engines[model]
                    engine.spare = 0
                    self._start(engine)
                case Refit(model):
                    engine = self._engines[model]
                    engine.spare = REFIT_SPARE_BYTES
                    self._start(engine)
                case Proceed(model):
                    self._proceed(self._engines[model])
                case Stop(model, reason):
                    self._stop(self._engines[model], reason)
                case Admit(ticket):
                    self._admit(ticket)
                case Refuse(ticket, status, reason, retry_after):
                    _, engine, name = self._waiting[ticket]
                    # The scheduler names the engine, which several models may share.
                    reason = reason.replace(f"'{engine.host.label}'", f"'{name}'")
                    self._settle(ticket, RefusedError(status, reason, retry_after))
        if sets_timer:
            self._set_timer()

    def _admit(self, ticket: int) -> None:
        engine = self._waiting[ticket][1]
        self._count(engine, 1)
        if not self._settle(ticket):
            self.leave(engine.id)  # its client has left just now

    def _settle(self, ticket: int, error: RefusedError | None = None) -> bool:
        """End the wait of a request. Return False if it does not wait any more."""
        future, *_ = self._waiting.pop(ticket)
        if future.done():
            return False
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)
        return True

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = _now()
        at = self.scheduler.next_tick(now)
        if at is not None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._apply(self.scheduler.tick(_now()))

    def _spawn(self, work: asyncio.Task[None]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    # The life of an engine.

    def _start(self, engine: Engine) -> None:
        engine.t_start = _now()
        self._spawn(asyncio.ensure_future(engine.host.load()))

    async def _on_planned(self, engine: Engine, need: Mapping[str, int], capacity: Mapping[str, int]) -> None:
        """Wait until the memory that an engine needs is reserved for it."""
        if self.scheduler.state(engine.id) not in (ModelState.PLANNING, ModelState.WAITING):
            return  # it was restarted after a crash, and its memory is still reserved
        engine.proceed = asyncio.get_running_loop().create_future()
        self._capacity |= capacity
        self._apply(self.scheduler.planned(engine.id, need, capacity, _now()))
        if not engine.proceed.done():
            self._spawn(asyncio.ensure_future(read_ahead(engine.host.settings.model)))
        await engine.proceed

    def _proceed(self, engine: Engine) -> None:
        engine.t_start = _now()
        if engine.proceed is not None and not engine.proceed.done():
            engine.proceed.set_result(None)

    def _stop(self, engine: Engine, reason: StopReason) -> None:
        log.info("unloading %s: %s", engine.host.label, _WHY[reason])
        engine.stopping = asyncio.ensure_future(self._stopped(engine, reason))
        self._spawn(engine.stopping)

    async def _stopped(self, engine: Engine, reason: StopReason) -> None:
        state = {"slept": State.SLEEPING, "failed": State.FAILED}.get(reason, State.UNLOADED)
        await engine.host.unload(state, engine.stop_seconds)
        if reason == "failed":
            engine.host.error = self.scheduler.reason(engine.id)
        engine.stopping = None
        engine.spare = 0
        self._divide()  # its prompts count as those of a model without an engine from now on
        self._apply(self.scheduler.stopped(engine.id, _now()))

    def _on_state(self, engine: Engine) -> None:
        """Tell the scheduler what has become of an engine."""
        host, now = engine.host, _now()
        if engine.stopping is None and not self._is_closed:
            if host.state is State.READY:
                self._apply(self.scheduler.loaded(engine.id, host.measured, now, now - engine.t_start))
            elif host.state is State.FAILED:
                self._apply(self.scheduler.failed(engine.id, host.error, now, is_memory=host.is_memory))
            elif host.state is State.RESTARTING:
                engine.t_start = now
                self._apply(self.scheduler.crashed(engine.id, now))
        self._divide()
        if self.changed is not None:
            self.changed(engine.id)

    def _budget(self, engine: Engine) -> Budget:
        """Return what the engine may plan with."""
        ours: Counter[str] = Counter()
        pinned: Counter[str] = Counter()
        for id, held in self.scheduler.ledger.models().items():
            if id != engine.id:
                ours.update(held)
                pinned.update(held if self._engines[id].is_pinned else {})
        share = SHARE_OF_SEVERAL if self.n_models > 1 else 1.0
        return Budget(
            ours=ours,
            pinned=pinned,
            share=share,
            spare=engine.spare,
            bytes_max=self._memory_max,
            capacity=self._capacity,
            cache_bytes=sum(one.host.cache_memory.n_bytes for one in self._engines.values()),
        )

    def drain(self) -> None:
        """Refuse the requests that wait, and start no engine any more. Those that run go on."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for ticket in list(self._waiting):
            self._settle(ticket, RefusedError(503, "The server is shutting down", 5))
        for engine in self._engines.values():
            engine.host.drain()

    async def close(self) -> None:
        """End all engines. Requests that run fail."""
        if not self._is_closed:
            self.drain()
        await asyncio.gather(*(engine.host.close() for engine in self._engines.values()))


def _now() -> float:
    return time.monotonic()
