"""Owns the default thread counts. Runs at start-up; reads the machine's topology and limits, changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

CPUS = Path("/sys/devices/system/cpu")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
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


def quota_cores() -> float | None:
    """The CPU quota of a container or service, in cores; None if there is none."""
    found = [_quota(folder) for folder in _cgroups()]
    return min((cores for cores in found if cores is not None), default=None)


def _cgroups() -> list[Path]:
    """The process's cgroups and their parents, each of which may have a limit. In a container, which sees its own
    cgroup as the root, a path may not exist."""
    try:
        lines = OWN_CGROUP.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    folders = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        own = (CGROUPS / controllers if controllers else CGROUPS) / path.lstrip("/")
        folders += [own, *(parent for parent in own.parents if parent.is_relative_to(CGROUPS))]
    return folders


def _quota(folder: Path) -> float | None:
    """The limit of one cgroup, v1 or v2."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None  # "max", or no limit
    return cores if cores > 0 else None


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
