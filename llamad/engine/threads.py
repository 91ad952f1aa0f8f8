"""Owns the default numbers of threads. Runs at start-up; reads the machine's topology, changes nothing."""

from __future__ import annotations

import os
from pathlib import Path


def physical_cores() -> int:
    """Cores this process may use, hyper-threads counted once."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(topology.read_text(encoding="ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return max(1, len(cores))


def compute_threads(n_wanted: int) -> int:
    """Threads for llama.cpp. A small machine leaves one core to the event loop: llama.cpp's barriers stall
    badly when a compute thread has to share its core."""
    if n_wanted > 0:
        return n_wanted
    n = physical_cores()
    return max(1, n - 1) if n <= 8 else n


def express_threads(n_wanted: int) -> tuple[int, int]:
    """Threads of the express lane, 0 for none, and for how many microseconds each may spin after a request: where
    cores are few, one that spins would take the time of somebody who computes."""
    n_cores = len(os.sched_getaffinity(0))
    n = n_wanted if n_wanted >= 0 else max(min(2, n_cores), min(6, n_cores * 3 // 8))
    return n, 100 if n_cores >= 8 else 0


def sampler_threads(n_wanted: int, n_slots: int, has_device: bool) -> int:
    """Threads that sample the slots of a step in parallel. Where a device computes, all cores but those of the event
    loop and of whoever feeds the device are free for it."""
    if n_wanted > 0:
        return n_wanted
    n_cores = len(os.sched_getaffinity(0))
    return max(1, min(n_slots, n_cores - 2 if has_device else min(8, n_cores // 2)))
