"""The placement of compute threads: thread pools with CPU masks, priority and polling, from the flags. Without such a
flag there are none, and the system places llama.cpp's threads.

attach() runs in the engine's main thread; bind_caller() runs in each thread that computes, before its first decode.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from llamad._llama import ffi, lib
from llamad.protocol.errors import LoadError

if TYPE_CHECKING:
    from llamad.flags.settings import ModelSettings

POLL = 50  # ggml's default
# The real-time priorities that ggml requests from Linux, by --prio.
_FIFO = {1: 40, 2: 80, 3: 90}


class Pool(msgspec.Struct, frozen=True):
    """The threads of one kind of step. If `cpus` is empty, they may run on any CPU."""

    n_threads: int
    cpus: tuple[int, ...]
    is_strict: bool
    prio: int
    poll: int

    @property
    def is_plain(self) -> bool:
        return not self.cpus and self.prio == 0 and self.poll == POLL

    def params(self) -> Any:
        params = ffi.new("struct ggml_threadpool_params *")
        lib.ggml_threadpool_params_init(params, self.n_threads)
        for cpu in self.cpus:
            params.cpumask[cpu] = True
        params.strict_cpu, params.prio, params.poll = self.is_strict, self.prio, self.poll
        params.paused = True  # otherwise creating the pool would bind the calling thread
        return params


class Pools(msgspec.Struct, frozen=True):
    """The pool `decode` is for steps of one token, `batch` for all others."""

    decode: Pool
    batch: Pool


def pools(settings: ModelSettings, n_threads: int) -> Pools | None:
    """Return the pools that the flags request, or None if there are none. Raises LoadError for CPUs that this process
    may not use."""

    def other(value: int | None, default: int) -> int:
        return default if value is None else value

    cpus = _cpus(settings.cpu_mask, settings.cpu_range, "--cpu-mask and --cpu-range")
    if not cpus and _places_draft(settings):
        cpus = tuple(sorted(os.sched_getaffinity(0)))
    decode = Pool(
        n_threads,
        cpus,
        bool(settings.cpu_strict),
        settings.prio,
        settings.poll,
    )
    batch = Pool(
        settings.n_threads_batch or n_threads,
        _cpus(settings.cpu_mask_batch, settings.cpu_range_batch, "--cpu-mask-batch and --cpu-range-batch")
        or decode.cpus,
        bool(other(settings.cpu_strict_batch, settings.cpu_strict)),
        other(settings.prio_batch, settings.prio),
        other(settings.poll_batch, settings.poll),
    )
    return None if decode.is_plain and batch.is_plain else Pools(decode, batch)


def _places_draft(settings: ModelSettings) -> bool:
    """Return whether threads of the draft model have CPUs of their own. OpenMP's threads compute both models, and stay
    where they were placed last."""
    decode = settings.cpu_mask_draft or settings.cpu_range_draft
    batch = settings.cpu_mask_batch_draft or settings.cpu_range_batch_draft
    return bool(decode or batch)


def _cpus(mask: tuple[int, ...], span: tuple[int, ...], flags: str) -> tuple[int, ...]:
    requested, allowed = {*mask, *span}, os.sched_getaffinity(0)
    if requested and not requested & allowed:
        shown = ", ".join(map(str, sorted(allowed)))
        raise LoadError(f"{flags} name none of the CPUs that this process may use: {shown}")
    return tuple(sorted(requested & allowed))


def permitted(requested: Pools) -> tuple[Pools | None, list[str]]:
    """Return the pools without what this system or this build refuses, and the reasons. ggml would try it again at
    every step."""
    allowed: list[Pool] = []
    refusals: dict[str, None] = {}
    for pool in (requested.decode, requested.batch):
        if pool.prio in _FIFO and not _may_be_realtime(_FIFO[pool.prio]):
            refusals[
                f"--prio {pool.prio} has no effect: it needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of {_FIFO[pool.prio]}"
            ] = None
            pool = msgspec.structs.replace(pool, prio=0)
        if pool.poll != POLL and lib.llamad_has_openmp():
            refusals[
                f"--poll {pool.poll} has no effect: this llama.cpp's threads are OpenMP's; see OMP_WAIT_POLICY"
            ] = None
            pool = msgspec.structs.replace(pool, poll=POLL)
        allowed.append(pool)
    pools = None if all(pool.is_plain for pool in allowed) else Pools(*allowed)
    return pools, list(refusals)


def _may_be_realtime(priority: int) -> bool:
    done: list[bool] = []

    def tried() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
            done.append(True)
        except OSError:
            done.append(False)

    thread = threading.Thread(target=tried)  # a new thread, because the priority stays
    thread.start()
    thread.join()
    return done == [True]


def attach(context: Any, pools: Pools | None) -> None:
    """Give a context its thread pools. Raises LoadError."""
    if pools is None:
        return
    one = pools.decode.params()
    two = pools.batch.params() if pools.batch != pools.decode else ffi.NULL
    if lib.llamad_context_pools(context, one, two) != 0:
        raise LoadError(
            "llama.cpp could not make its thread pools; leave out --cpu-mask, --prio and the like"
        )


def bind_caller(pool: Pool | None) -> None:
    """Place the calling thread if it computes alone, because ggml with OpenMP only places teams of threads."""
    if pool is None or pool.n_threads > 1:
        return
    if pool.cpus:
        os.sched_setaffinity(0, pool.cpus[:1] if pool.is_strict else pool.cpus)
    if pool.prio in _FIFO:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_FIFO[pool.prio]))
    elif pool.prio < 0:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@contextmanager
def restored() -> Iterator[None]:
    """Restore the placement of the calling thread after it has computed, because ggml leaves it bound."""
    cpus, policy, param = os.sched_getaffinity(0), os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        if os.sched_getscheduler(0) != policy:
            os.sched_setscheduler(0, policy, param)
