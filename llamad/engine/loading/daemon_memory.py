"""Measures the host memory that the processes of this daemon hold. Runs in the thread that loads; changes nothing.

The daemon's engines and helpers are children of the front. The system is asked, and not the front, because prompts in
host memory and a load in progress change what they hold at any time.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")


def private_bytes() -> int:
    """Return the bytes that this process and the front's other children hold, without pages of files that the system
    can read again."""
    parent = os.getppid()
    own = os.getpid()
    return sum(_private(pid) for pid in _processes() if pid == own or _parent(pid) == parent)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        # The name, which is in parentheses, may have spaces.
        fields = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        return int(fields.split()[1])
    except (OSError, ValueError, IndexError):
        return -1  # it has ended


def _private(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        rows = dict(line.split(":", 1) for line in lines)
        anonymous, files, locked = (int(rows[name].split()[0]) for name in ("RssAnon", "RssFile", "VmLck"))
    except (OSError, ValueError, KeyError, IndexError):
        return 0
    return (anonymous + min(files, locked)) * 1024
