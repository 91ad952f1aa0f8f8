"""Owns memory in files without a name that processes share: how it is made, and how its size is sealed.

Any thread. A process that maps a file ends with SIGBUS when another one has cut it, so no process maps memory that
another can cut: whoever makes it seals its size, and whoever gets it checks the seals before it maps or reads it.
"""

from __future__ import annotations

import fcntl
import os

SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
LAST = SIZE | fcntl.F_SEAL_SEAL
CONTENTS = LAST | fcntl.F_SEAL_WRITE


class UnsealedError(OSError):
    """The other process can still change what this one is about to use."""


def create(name: str) -> int:
    """Returns the descriptor of an empty file that can be sealed. Raises OSError."""
    return os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def seal(fd: int, *, contents: bool = False) -> None:
    """Fix the size for good, and with `contents` the bytes, too. Raises OSError."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, CONTENTS if contents else LAST)


def checked_size(fd: int, *, contents: bool = False) -> int:
    """Returns the size of a file from another process, which cannot change it any more. Raises UnsealedError."""
    needed = CONTENTS if contents else SIZE
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise UnsealedError("what it sent is no shared memory") from None
    if seals & needed != needed:
        raise UnsealedError("the memory that it sent is not sealed")
    return os.fstat(fd).st_size
