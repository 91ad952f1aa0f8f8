"""FILE.part, which holds a download until it is complete: its lock, its contents, its checksum.

Any thread; blocks. The lock is on the file itself, so it ends with the process that holds it, and nothing needs to be
cleaned up.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

PART = ".part"
ETAG = ".etag"
READ_BYTES = 1 << 20
_MODE = 0o644


class PartFile:
    """An incomplete file, open and locked. Errors are OSError."""

    def __init__(self, fd: int, target: Path) -> None:
        self._fd = fd
        self._target = target
        self._oid = ""
        self._hash: hashlib._Hash | None = None
        self.size = os.fstat(fd).st_size

    @classmethod
    def open(cls, target: Path, is_final: bool, wait: Callable[[int], None]) -> PartFile | None:
        """Open the part file of `target`. While another process has it, `wait` is called with its size. Return None if
        `target` exists by now and `is_final`, because its name is its checksum."""
        path = part_path(target)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
            try:
                while not _try_lock(fd):
                    wait(os.fstat(fd).st_size)
                is_current = _is_at(fd, path)
                part_file = cls(fd, target)
            except BaseException:
                os.close(fd)
                raise
            if is_current and is_final and target.exists():
                part_file.restart()
                part_file.close()
                return None
            if is_current:
                return part_file
            os.close(fd)  # it was renamed to the target or removed, so the lock is on another file

    @property
    def etag(self) -> str:
        """Return the ETag of the file that is being downloaded, or "" if it is not known."""
        return read_etag(part_path(self._target)) if self.size else ""

    def expect(self, oid: str, size: int | None) -> None:
        """Hash the contents from now on, including what is already there."""
        if oid == self._oid:
            return
        self._oid = oid
        self._begin_hash(size)
        if self._hash is not None:
            at = 0
            while data := os.pread(self._fd, READ_BYTES, at):
                self._hash.update(data)
                at += len(data)

    def _begin_hash(self, size: int | None) -> None:
        self._hash = None
        if len(self._oid) == 64:
            self._hash = hashlib.sha256()
        elif self._oid and size is not None:
            # This is how git hashes a file.
            self._hash = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)

    def restart(self, etag: str = "", size: int | None = None) -> None:
        """Drop the contents; what follows belongs to the file with this ETag."""
        os.ftruncate(self._fd, 0)
        self.size = 0
        self._begin_hash(size)
        write_etag(part_path(self._target), etag)

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            n = os.pwrite(self._fd, view, self.size)
            self.size += n
            view = view[n:]
        if self._hash is not None:
            self._hash.update(data)

    @property
    def is_hashed(self) -> bool:
        """Return whether the contents can be checked."""
        return self._hash is not None

    def is_right(self) -> bool:
        """Return whether the contents match the checksum, or there is none."""
        return self._hash is None or self._hash.hexdigest() == self._oid

    def finish(self, etag: str = "") -> None:
        """Move the complete file to its place."""
        os.fsync(self._fd)
        os.replace(part_path(self._target), self._target)
        write_etag(part_path(self._target), "")
        write_etag(self._target, etag)

    def close(self) -> None:
        """Close the file; an empty one is removed."""
        try:
            if not self.size and _is_at(self._fd, part_path(self._target)):
                part_path(self._target).unlink()
                write_etag(part_path(self._target), "")
        finally:
            os.close(self._fd)


def part_path(target: Path) -> Path:
    return target.with_name(target.name + PART)


def is_busy(part: Path) -> bool:
    """Return whether another process downloads into the file."""
    try:
        fd = os.open(part, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def read_etag(path: Path) -> str:
    """Return the ETag that was stored for a file, or "". llama-server reads and writes the same."""
    try:
        return path.with_name(path.name + ETAG).read_text(encoding="latin-1").partition("\n")[0].strip()
    except OSError:
        return ""


def write_etag(path: Path, etag: str) -> None:
    beside = path.with_name(path.name + ETAG)
    if etag:
        beside.write_text(etag, encoding="latin-1")
    else:
        beside.unlink(missing_ok=True)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(fd: int, path: Path) -> bool:
    """Return whether the path still names the open file."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    opened = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (opened.st_dev, opened.st_ino)
