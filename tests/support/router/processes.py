"""The processes of a daemon with many models, and their memory."""

from __future__ import annotations

import re
from pathlib import Path

from support.live_daemon import Live, engines


def serving_engines(server: Live) -> list[int]:
    """The engine processes that have a model. A spare one, which has only Python in it, is not among them."""
    return [pid for pid in engines(server.process.pid) if _has_context(pid)]


def _has_context(pid: int) -> bool:
    try:
        return b"llama" in Path(f"/proc/{pid}/maps").read_bytes() and rss(pid) > SPARE_BYTES
    except OSError:
        return False


SPARE_BYTES = 64 << 20


def rss(pid: int) -> int:
    """The resident bytes of a process."""
    resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(resident[1]) * 1024 if resident is not None else 0


def tree_rss(server: Live) -> int:
    """The resident bytes of the daemon and its engines."""
    return sum(rss(pid) for pid in (server.process.pid, *engines(server.process.pid)))
