"""Reads the limits of control groups, v1 and v2: the CPU time and memory of a container or a service. Runs at start-up;
changes nothing."""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def quota_cores() -> float | None:
    """Return the CPU quota in cores, or None if there is none."""
    quotas = [_quota(folder) for folder in _folders("cpu")]
    return min((cores for cores in quotas if cores is not None), default=None)


def memory_left(*, with_files: bool = False) -> int | None:
    """Return the bytes that may still be allocated, or None if there is no limit. Cached pages of files that were used
    lately count as free only with `with_files`."""
    rooms = [_left(folder, with_files) for folder in _folders("memory")]
    return min((left for left in rooms if left is not None), default=None)


def _folders(controller: str) -> list[Path]:
    """Return the folders of the process's cgroups and their parents, each of which may have a limit. In a container,
    which sees its own cgroup as the root, a path may not exist."""
    try:
        lines = OWN_CGROUP.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    folders = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        own = (CGROUPS / controllers if controllers else CGROUPS) / path.lstrip("/")
        folders += [own, *(parent for parent in own.parents if parent.is_relative_to(CGROUPS))]
    return folders


def _quota(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():
            quota, period = _words(folder / "cpu.max")
        else:
            (quota,) = _words(folder / "cpu.cfs_quota_us")
            (period,) = _words(folder / "cpu.cfs_period_us")
        cores = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None  # "max", or no limit
    return cores if cores > 0 else None


def _left(folder: Path, with_files: bool) -> int | None:
    """Return the bytes left in a cgroup. memory.high counts as a limit, too, because beyond it the kernel slows the
    group down severely."""
    is_second = (folder / "memory.max").is_file()
    limits = ("memory.max", "memory.high") if is_second else ("memory.limit_in_bytes",)
    used = _number(folder / ("memory.current" if is_second else "memory.usage_in_bytes"))
    values = [limit for limit in (_number(folder / name) for name in limits) if limit is not None]
    if not values or used is None:
        return None
    # Cached file pages count as used but are reclaimed when memory is needed.
    rows = ("inactive_file", "active_file") if with_files else ("inactive_file",)
    cached = sum(_row(folder / "memory.stat", name if is_second else f"total_{name}") for name in rows)
    return max(0, min(values) - used + cached)


def _row(path: Path, name: str) -> int:
    try:
        rows = dict(line.split() for line in path.read_text(encoding="ascii").splitlines())
        return int(rows.get(name, 0))
    except (OSError, ValueError):
        return 0


def _number(path: Path) -> int | None:
    try:
        (text,) = _words(path)
        return int(text)
    except (OSError, ValueError):
        return None  # "max", or no such file


def _words(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").split()
