"""Shared memory in anonymous files (memfd): creates them and seals their size.

Any thread. A process that maps a file dies with SIGBUS if another process has truncated it, so no process maps memory
that another can truncate: the creator seals the size, and the receiver checks the seals before it maps or reads it.
"""

from __future__ import annotations

import fcntl
import os

SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
LAST = SIZE | fcntl.F_SEAL_SEAL
CONTENTS = LAST | fcntl.F_SEAL_WRITE


class UnsealedError(OSError):
    """Another process can still change the memory that this one is about to use."""


def create(name: str) -> int:
    """Return the descriptor of an empty file that can be sealed. Raises OSError."""
    return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def seal(fd: int, *, contents: bool = False) -> None:
    """Fix the size for good, and with `contents` also the bytes. Raises OSError."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, CONTENTS if contents else LAST)


def checked_size(fd: int, *, contents: bool = False) -> int:
    """Return the size of a file from another process, after checking that it can no longer change. Raises
    UnsealedError."""
    needed = CONTENTS if contents else SIZE
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise UnsealedError("the descriptor that it sent is not shared memory") from None
    if seals & needed != needed:
        raise UnsealedError("the memory that it sent is not sealed")
    return os.fstat(fd).st_size
