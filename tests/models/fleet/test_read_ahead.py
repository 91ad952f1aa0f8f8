"""The file of a model that waits for memory is read ahead, but only into memory that nobody uses."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest

from llamad.models.fleet import read_ahead
from llamad.models.fleet.read_ahead import SPARE_BYTES

KIB = 1 << 10


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The bytes that the kernel was asked to read, by the name of the file."""
    n_asked: dict[str, int] = {}

    def advise(fd: int, offset: int, n: int, advice: int) -> None:
        assert (offset, advice) == (0, os.POSIX_FADV_WILLNEED)
        n_asked[os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))] = n

    monkeypatch.setattr(os, "posix_fadvise", advise)
    return n_asked


def shards(folder: Path, *sizes: int) -> str:
    """Write the parts of a model, and return the path of the first one."""
    paths = [folder / f"m-{i:05}-of-{len(sizes):05}.gguf" for i in range(1, len(sizes) + 1)]
    for path, n in zip(paths, sizes, strict=True):
        path.write_bytes(b"x" * n)
    return str(paths[0])


@pytest.mark.parametrize(
    ("n_unused", "n_expected"),
    [
        (SPARE_BYTES + 100 * KIB, [8 * KIB, 4 * KIB]),
        (SPARE_BYTES + 9 * KIB, [8 * KIB, 1 * KIB]),
        (SPARE_BYTES + 8 * KIB, [8 * KIB]),
        (SPARE_BYTES + 3 * KIB, [3 * KIB]),
        (SPARE_BYTES, []),
        (0, []),
    ],
)
def test_as_much_is_read_as_fits(
    asked: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    n_unused: int,
    n_expected: list[int],
) -> None:
    path = shards(tmp_path, 8 * KIB, 4 * KIB)
    monkeypatch.setattr(read_ahead, "unused_bytes", lambda: n_unused)
    asyncio.run(read_ahead.read_ahead(path))
    assert list(asked.values()) == n_expected


def test_a_part_that_is_missing_is_left_to_the_load(
    asked: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shards(tmp_path, KIB, KIB, KIB)
    os.remove(tmp_path / "m-00002-of-00003.gguf")
    monkeypatch.setattr(read_ahead, "unused_bytes", lambda: SPARE_BYTES + 100 * KIB)
    asyncio.run(read_ahead.read_ahead(path))
    assert list(asked) == ["m-00001-of-00003.gguf"]


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("MemTotal: 900 kB\nMemFree:  30 kB\nMemAvailable: 700 kB\nCached: 600 kB\n", 30 * KIB),
        ("x", 0),
        ("", 0),
    ],
)
def test_pages_of_files_are_not_unused(monkeypatch: pytest.MonkeyPatch, text: str, n_bytes: int) -> None:
    """Those of other models' files must not be dropped for it."""
    monkeypatch.setattr(read_ahead, "open", lambda *_, **__: io.StringIO(text), raising=False)
    assert read_ahead.unused_bytes() == n_bytes
