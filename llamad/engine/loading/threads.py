"""Owns the default thread counts. Runs at start-up; reads the machine's topology and limits, changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from llamad.engine.loading.cgroups import quota_cores

CPUS = Path("/sys/devices/system/cpu")
# With up to this many cores, one is left to the event loop.
SMALL_MACHINE = 8


def physical_cores() -> int:
    """Cores this process may use, hyper-threads counted once."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        try:
            cores.add((CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))


def compute_threads(n_wanted: int) -> int:
    """Threads for llama.cpp. They wait for each other after every operation, so a thread that shares its core, or a
    cgroup throttled by its quota, stalls all of them: a small machine leaves one core to the event loop, and a quota
    counts in whole cores."""
    if n_wanted > 0:
        return n_wanted
    n, quota = physical_cores(), quota_cores()
    if quota is not None:
        n = min(n, max(1, int(quota)))
    return max(1, n - 1) if n <= SMALL_MACHINE else n


def _cores() -> int:
    """Logical cores that this process may use; a quota counts in whole cores."""
    n, quota = len(os.sched_getaffinity(0)), quota_cores()
    return n if quota is None else min(n, max(1, int(quota)))


def sampler_threads(n_wanted: int, n_slots: int, has_device: bool) -> int:
    """Threads that sample the slots of a step in parallel. If a GPU computes, they get most of the cores while its
    logits arrive; the rest feed the GPU, run the event loop and tokenize."""
    if n_wanted > 0:
        return n_wanted
    n_cores = _cores()
    return max(1, min(n_slots, n_cores * 3 // 4 if has_device else min(8, n_cores // 2)))
