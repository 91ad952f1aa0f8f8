"""What the scheduler knows about one model.

Plain data with questions about it. Only transitions.py changes `state`.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from llamad.models.fleet.effects import StopReason


class State(enum.StrEnum):
    """A model's state, as endpoints show it."""

    UNLOADED = "unloaded"
    PLANNING = "planning"
    WAITING = "waiting"  # it knows what memory it needs, and waits for it
    LOADING = "loading"  # also after a crash, while its engine starts again
    LOADED = "loaded"
    DRAINING = "draining"  # it admits nothing new, finishes, and leaves
    STOPPING = "stopping"
    SLEEPING = "sleeping"
    FAILED = "failed"


# Without an engine process.
RESTING = frozenset({State.UNLOADED, State.SLEEPING, State.FAILED})
# Those that `models_max` counts.
COUNTED = frozenset({State.PLANNING, State.WAITING, State.LOADING, State.LOADED, State.DRAINING})


class Model(msgspec.Struct, eq=False):
    name: str
    title: str  # its name in texts and metrics; engines that replace each other have the same
    is_pinned: bool = False
    sleep_seconds: float = -1.0
    reload_seconds: float = 5.0
    keep_seconds: float = 0.0  # the longest time for which a client wanted to keep it, until it stops

    state: State = State.UNLOADED
    rest: State = State.UNLOADED  # its state once its process has ended
    leaving: StopReason | None = None  # why it drains or stops
    is_removed: bool = False

    waiters: OrderedDict[int, float] = msgspec.field(default_factory=OrderedDict)  # ticket: time of arrival
    bound: set[int] = msgspec.field(default_factory=set)  # the waiters for which it must not be loaded again
    asked_at: float | None = None  # when the operator asked for it, until it is loaded
    n_active: int = 0

    started_at: float = 0.0
    loaded_at: float = -math.inf
    used_at: float = -math.inf
    is_crashed: bool = False
    # It cannot plan yet, because its files are downloaded or a worker is awaited. That may take hours, so it has no
    # place among `models_max` until it loads, and nobody waits for its plan.
    is_delayed: bool = False
    need: Mapping[str, int] | None = None  # its last plan, in bytes by device

    failure: str = ""
    n_failures: int = 0
    retry_at: float = -math.inf
    has_refitted: bool = False  # since it was last loaded
    is_refit: bool = False  # its next start is a Refit
    refit_victim: str | None = None  # which must have stopped before that

    @property
    def is_wanted(self) -> bool:
        """Return whether somebody waits until it is loaded."""
        return bool(self.waiters) or self.asked_at is not None

    @property
    def since(self) -> float:
        """Return when the oldest of those who wait for it arrived; it must be wanted."""
        first = next(iter(self.waiters.values()), math.inf)
        return first if self.asked_at is None else min(first, self.asked_at)

    @property
    def is_victim(self) -> bool:
        """Return whether it drains for another model. Such a drain can be cancelled."""
        return self.state is State.DRAINING and self.leaving in ("evicted", "count")

    @property
    def has_slot(self) -> bool:
        """Return whether it counts for `models_max`."""
        return self.state in COUNTED and not self.is_delayed

    @property
    def idle_since(self) -> float:
        return max(self.used_at, self.loaded_at)
