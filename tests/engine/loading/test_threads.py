"""How many threads compute by default: cores that this process may use, less one on a small machine. And which of them
ask for short turns."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llamad.base.clock import be_brief_here
from llamad.engine.loading import cgroups, threads


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Sets up a machine: its CPUs' siblings, which of them are allowed, and files of control groups."""
    monkeypatch.setattr(threads, "CPUS", tmp_path / "cpus")
    monkeypatch.setattr(cgroups, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN_CGROUP", tmp_path / "own")

    def make(siblings: list[str], allowed: set[int] | None = None, own: str = "0::/", **files: str) -> None:
        for i, text in enumerate(siblings):
            folder = tmp_path / "cpus" / f"cpu{i}" / "topology"
            folder.mkdir(parents=True)
            (folder / "thread_siblings_list").write_text(text + "\n")
        (tmp_path / "own").write_text(own + "\n")
        for path, text in files.items():
            file = tmp_path / "cgroup" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        cpus = set(range(len(siblings))) if allowed is None else allowed
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cpus)

    return make


def alone(n: int) -> list[str]:
    return [str(i) for i in range(n)]


@pytest.mark.parametrize(("n_cores", "n_threads"), [(1, 1), (2, 1), (4, 3), (8, 7), (9, 9), (64, 64)])
def test_a_small_machine_leaves_one_core_to_the_event_loop(machine, n_cores, n_threads):
    machine(alone(n_cores))
    assert threads.compute_threads(0) == n_threads


def test_what_is_asked_for_is_taken(machine):
    machine(alone(2), **{"cpu.max": "100000 100000"})
    assert threads.compute_threads(6) == 6


def test_hyper_threads_count_once_and_only_allowed_cpus_count(machine):
    machine([f"{i % 12},{i % 12 + 12}" for i in range(24)], allowed={0, 12, 1, 2})
    assert threads.physical_cores() == 3
    assert threads.compute_threads(0) == 2


def test_a_machine_that_does_not_tell_its_topology_counts_cpus(machine):
    machine([], allowed={0, 1, 2})
    assert threads.compute_threads(0) == 2


@pytest.mark.parametrize(
    ("limit", "n_threads"),
    [("max 100000", 16), ("400000 100000", 3), ("150000 100000", 1), ("20000 100000", 1), ("broken", 16)],
)
def test_a_quota_counts_in_whole_cores(machine, limit, n_threads):
    machine(alone(16), **{"cpu.max": limit})
    assert threads.compute_threads(0) == n_threads


def test_the_tightest_quota_of_all_groups_above_counts(machine):
    machine(
        alone(16),
        own="0::/system.slice/llamad.service",
        **{"system.slice/cpu.max": "300000 100000", "system.slice/llamad.service/cpu.max": "max 100000"},
    )
    assert cgroups.quota_cores() == 3.0


def test_the_first_version_of_control_groups_is_read_too(machine):
    machine(
        alone(16),
        own="4:cpu,cpuacct:/docker/x\n3:memory:/docker/x",
        **{"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
    )
    assert cgroups.quota_cores() == 2.5
    assert threads.compute_threads(0) == 1


def test_no_quota_in_the_first_version_is_minus_one(machine):
    machine(
        alone(4),
        own="4:cpu,cpuacct:/",
        **{"cpu,cpuacct/cpu.cfs_quota_us": "-1", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
    )
    assert cgroups.quota_cores() is None
    assert threads.compute_threads(0) == 3


@pytest.mark.parametrize(
    ("n_cores", "limit", "n_slots", "has_device", "n"),
    [
        (16, "max", 64, True, 12),
        (16, "max", 64, False, 8),
        (64, "max", 64, False, 8),
        (16, "max", 4, True, 4),
        (2, "max", 64, True, 1),
        (1, "max", 64, False, 1),
        (16, "400000", 64, True, 3),
    ],
)
def test_sampler_threads_leave_cores_to_others(machine, n_cores, limit, n_slots, has_device, n):
    machine(alone(n_cores), **{"cpu.max": f"{limit} 100000"})
    assert threads.sampler_threads(0, n_slots, has_device) == n
    assert threads.sampler_threads(5, n_slots, has_device) == 5


def turn_ns() -> int:
    """How long a turn the calling thread asks of the scheduler for; 0 where Linux has no such thing."""
    number = {"x86_64": 315, "aarch64": 275}[platform.machine()]  # sched_getattr
    attributes = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(number, 0, attributes, 48, 0) == 0
    return struct.unpack_from("<Q", attributes.raw, 24)[0]


def test_a_brief_thread_asks_for_short_turns_and_those_it_starts_do_not():
    def brief() -> tuple[int, int, int]:
        before = turn_ns()
        be_brief_here()
        with ThreadPoolExecutor(1) as pool:
            return before, turn_ns(), pool.submit(turn_ns).result()

    with ThreadPoolExecutor(1) as pool:
        before, after, started = pool.submit(brief).result()
    assert after == (100_000 if before else 0)
    assert started == before
