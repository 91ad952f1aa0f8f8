"""Temporary files: those of processes that have ended are removed, and only those."""

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamad.base import atomic_file
from llamad.base.atomic_file import PREFIX


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_only_the_files_of_ended_processes_are_swept(folder: int, tmp_path: Path) -> None:
    written, name = atomic_file.create(folder)
    (tmp_path / f"{PREFIX}1-0").write_text("left")
    (tmp_path / f"{PREFIX}2-0").mkdir()
    os.mkfifo(tmp_path / f"{PREFIX}3-0")
    (tmp_path / f"{PREFIX}4-0").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").write_text("mine")
    atomic_file.sweep(folder)
    kept = {name, f"{PREFIX}2-0", f"{PREFIX}3-0", f"{PREFIX}4-0", "mine"}
    assert {one.name for one in tmp_path.iterdir()} == kept
    os.close(written)
    atomic_file.sweep(folder)
    assert not (tmp_path / name).exists()


def test_leftovers_on_nfs_are_swept(folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS makes a flock a lock of fcntl, and an exclusive one of those needs a file that is open for writing. Leftovers
    were opened for reading only, and stayed."""
    flock = fcntl.flock

    def nfs_flock(fd: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", nfs_flock)
    (tmp_path / f"{PREFIX}1-0").write_text("left")
    atomic_file.sweep(folder)
    assert list(tmp_path.iterdir()) == []
