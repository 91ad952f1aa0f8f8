"""The default thread counts. Runs at start-up; reads the machine's topology and limits, and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from llamad.engine.loading.cgroups import quota_cores

CPUS = Path("/sys/devices/system/cpu")
# With up to this many cores, one is left to the event loop.
SMALL_MACHINE = 8


def physical_cores() -> int:
    """Return how many physical cores this process may use; hyper-threads of a core count once."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        try:
            cores.add((CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))


def compute_threads(n_requested: int) -> int:
    """Return the number of threads for llama.cpp. They wait for each other after every operation, so a thread that
    shares its core, or a cgroup that its quota throttles, stalls all of them. Therefore a small machine leaves one core
    to the event loop, and a quota counts in whole cores."""
    if n_requested > 0:
        return n_requested
    n, quota = physical_cores(), quota_cores()
    if quota is not None:
        n = min(n, max(1, int(quota)))
    return max(1, n - 1) if n <= SMALL_MACHINE else n


def _cores() -> int:
    """Return how many logical cores this process may use; a quota counts in whole cores."""
    n, quota = len(os.sched_getaffinity(0)), quota_cores()
    return n if quota is None else min(n, max(1, int(quota)))


def sampler_threads(n_requested: int, n_slots: int, has_device: bool) -> int:
    """Return the number of threads that sample the slots of a step in parallel. If a GPU computes, they get most of the
    cores while its logits arrive; the other cores feed the GPU, run the event loop and tokenize."""
    if n_requested > 0:
        return n_requested
    n_cores = _cores()
    return max(1, min(n_slots, n_cores * 3 // 4 if has_device else min(8, n_cores // 2)))
