"""The processes of a daemon with many models, and their memory."""

from __future__ import annotations

import re
from pathlib import Path

from support.live_daemon import Live, engines, until


def engines_of(server: Live, path: Path) -> list[int]:
    """The engine processes that have mapped a model's file."""
    pids = []
    for pid in engines(server.process.pid):
        try:
            if str(path) in Path(f"/proc/{pid}/maps").read_text():
                pids.append(pid)
        except OSError:
            pass
    return pids


def engine_of(server: Live, path: Path) -> int:
    """The only engine process with a model's file, once it has mapped it."""
    (pid,) = until(lambda: engines_of(server, path), f"no engine has {path}")
    return int(pid)


def tree_rss(server: Live) -> int:
    """The resident bytes of the daemon and its engines."""
    return sum(_rss(pid) for pid in (server.process.pid, *engines(server.process.pid)))


def _rss(pid: int) -> int:
    try:
        resident = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:  # it has just ended
        return 0
    return int(resident[1]) * 1024 if resident is not None else 0
