"""How much memory a control group leaves: that of a service or a container, and of all groups above it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llamad.engine.loading import cgroups, memory

GIB = 1 << 30


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes the files of control groups, and which of them this process is in."""
    monkeypatch.setattr(cgroups, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "OWN_CGROUP", tmp_path / "own")

    def make(own: str, files: dict[str, object]) -> None:
        (tmp_path / "own").write_text(own + "\n")
        for path, text in files.items():
            file = tmp_path / "cgroup" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    return make


def limited(folder: str, most: object, used: int, high: object = "max", cached: int = 0) -> dict[str, object]:
    return {
        f"{folder}memory.max": most,
        f"{folder}memory.high": high,
        f"{folder}memory.current": used,
        f"{folder}memory.stat": f"anon 1\ninactive_file {cached}\nactive_file 7",
    }


def test_a_services_own_limit_counts(group):
    group("0::/system.slice/llamad.service", limited("system.slice/llamad.service/", 8 * GIB, 3 * GIB))
    assert cgroups.memory_left() == 5 * GIB


def test_the_tightest_of_all_groups_above_counts(group):
    own = limited("system.slice/llamad.service/", 8 * GIB, 1 * GIB)
    above = limited("system.slice/", 4 * GIB, 2 * GIB)
    group("0::/system.slice/llamad.service", {**own, **above})
    assert cgroups.memory_left() == 2 * GIB


def test_the_limit_that_slows_down_counts_and_cached_files_do_not(group):
    group("0::/", limited("", 8 * GIB, 5 * GIB, high=6 * GIB, cached=2 * GIB))
    assert cgroups.memory_left() == 3 * GIB


def test_all_cached_files_count_as_free_if_that_is_asked_for(group):
    """Weights that other engines have mapped are such pages."""
    group("0::/", limited("", 8 * GIB, 5 * GIB, cached=2 * GIB))
    assert cgroups.memory_left(with_files=True) == 5 * GIB + 7


def test_all_cached_files_of_the_first_version_count_too(group):
    rows = f"inactive_file 1\ntotal_inactive_file {GIB}\ntotal_active_file 9"
    usage = {"memory/memory.limit_in_bytes": 8 * GIB, "memory/memory.usage_in_bytes": 3 * GIB}
    group("4:memory:/docker/x", {**usage, "memory/memory.stat": rows})
    assert cgroups.memory_left(with_files=True) == 6 * GIB + 9


def test_nothing_is_left_beyond_the_limit(group):
    group("0::/", limited("", "max", 5 * GIB, high=4 * GIB))
    assert cgroups.memory_left() == 0


def test_no_limit_is_none(group):
    group("0::/", limited("", "max", 5 * GIB))
    assert cgroups.memory_left() is None


def test_the_first_version_of_control_groups_is_read_too(group):
    group(
        "4:memory:/docker/x\n3:cpu:/docker/x",
        {
            "memory/memory.limit_in_bytes": 8 * GIB,
            "memory/memory.usage_in_bytes": 3 * GIB,
            "memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}",
        },
    )
    assert cgroups.memory_left() == 6 * GIB


def test_what_is_free_is_the_smaller_of_the_machines_and_the_groups(group):
    group("0::/", limited("", GIB, GIB - 4096))
    assert memory.host_free() == 4096
    group("0::/", limited("", 1 << 60, 0))
    assert 4096 < memory.host_free() < 1 << 60
