"""What the scheduler is told about its limits, and the effects that it returns.

Plain data. The driver carries out the effects in the order in which they come.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# evicted: another model needs its memory. count: another model needs its place among `models_max`.
# unneeded: nobody waits for it any more, and it was not loaded yet. failed: it has planned and can never fit.
StopReason = Literal["evicted", "count", "unloaded", "slept", "reloaded", "removed", "unneeded", "failed"]


class Limits(msgspec.Struct, frozen=True):
    """The limits of the operator. A limit of 0 is no limit."""

    models_max: int = 0  # models that have an engine process, without those that stop
    wait_seconds: float = 30.0  # after this wait, busy models make room for the oldest waiter
    queue_max: int = 512  # requests that wait for one model
    # A model that was just loaded stays for so long, or for as long as its load took (at most `wait_seconds`), so that
    # models which take turns do not spend most of the time on loads. The latter holds for late waiters, too: after a
    # long load the next waiter is late already. 0: it may leave at once.
    residence_seconds: float = 5.0
    n_planning_max: int = 2  # engines that plan at once
    n_planned_max: int = 4  # engines that plan or have planned and wait for memory: each is a process


class Start(msgspec.Struct, frozen=True, tag=True):
    """Start an engine process and let it plan. Answer with planned() or failed()."""

    model: str


class Refit(msgspec.Struct, frozen=True, tag=True):
    """Start an engine process as Start does, after a load that ran out of the memory that was reserved for it. The
    engine must plan with what is really free."""

    model: str


class Proceed(msgspec.Struct, frozen=True, tag=True):
    """Let the engine load: its memory is reserved. Answer with loaded() or failed()."""

    model: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End the engine process. Answer with stopped() once it has ended and its memory is seen free."""

    model: str
    reason: StopReason


class Admit(msgspec.Struct, frozen=True, tag=True):
    """Let the request go on to its model, which is loaded. Call done() when it has ended."""

    ticket: int


class Refuse(msgspec.Struct, frozen=True, tag=True):
    """Answer the request with an error. `retry_after` is in seconds."""

    ticket: int
    status: int
    reason: str
    retry_after: int | None = None


Effect = Start | Refit | Proceed | Stop | Admit | Refuse
