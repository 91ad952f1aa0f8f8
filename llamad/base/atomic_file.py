"""Writes files atomically: to a temporary name, synced, then renamed. Removes what killed processes have left.

Every function blocks. Any thread. A folder is given by its descriptor, so that no name can lead elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterable

PREFIX = ".llamad-tmp-"  # begins the names of files that are being written
PIECE = 4 * 1024 * 1024  # bytes per system call


def create(folder: int) -> tuple[int, str]:
    """Create a locked temporary file. The lock ends with the process, so that leftovers can be recognized."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}"
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            return fd, name  # a file system without locks: its leftovers stay
        if os.fstat(fd).st_nlink:
            return fd, name
        os.close(fd)  # a starting process took it for a leftover before it was locked


def replace(folder: int, name: str, pieces: Iterable[bytes | memoryview]) -> int:
    """Write the pieces to a file, which is replaced when all of them are on the disk. Return its size."""
    fd, temporary = create(folder)
    try:
        try:
            n_bytes = sum(_write_all(fd, memoryview(piece)) for piece in pieces)
            os.fsync(fd)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    finally:
        os.close(fd)
    os.fsync(folder)
    return n_bytes


def _write_all(fd: int, view: memoryview) -> int:
    pos = 0
    while pos < len(view):
        pos += os.write(fd, view[pos : pos + PIECE])
    return pos


def sweep(folder: int) -> None:
    """Remove the temporary files of processes that have ended."""
    for name in os.listdir(folder):
        if not name.startswith(PREFIX):
            continue
        try:  # for writing, too: without that, NFS refuses an exclusive lock
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its writer is alive
                os.unlink(name, dir_fd=folder)
        except OSError:
            pass
        finally:
            os.close(fd)
