"""Who listens on a port of this machine, as the kernel says in /proc.

A key must not be sent to whoever happens to listen: the port may belong to another user's program.
"""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_LISTENING = "0A"


class Listener(msgspec.Struct, frozen=True):
    """`command` is the command line of its process, or empty if that cannot be read."""

    uid: int
    pid: int  # 0 if unknown
    command: tuple[str, ...]

    @property
    def is_llamad(self) -> bool:
        """Whether the command line is that of a llamad, as a program or as a module."""
        words = self.command
        if any(os.path.basename(word) == "llamad" for word in words[:2]):
            return True
        return any(pair == ("-m", "llamad") for pair in pairwise(words))


def find(port: int) -> list[Listener]:
    """Return the listeners on this TCP port, on any address."""
    listeners = []
    for uid, inode in _sockets(port):
        pid = _process(inode) if uid == os.geteuid() or os.geteuid() == 0 else 0
        listeners.append(Listener(uid, pid, _command(pid) if pid else ()))
    return listeners


def _sockets(port: int) -> set[tuple[int, str]]:
    """Return the user and the inode of each socket that listens on the port."""
    sockets = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add((int(fields[7]), fields[9]))
    return sockets


def _process(inode: str) -> int:
    """Return the process that has the socket; its parent, if several have inherited it. 0 if none can be seen."""
    name = f"socket:[{inode}]"
    for pid in sorted(int(entry) for entry in os.listdir(_PROC) if entry.isdigit()):
        folder = _PROC / str(pid) / "fd"
        try:
            if any(_target(folder / fd) == name for fd in os.listdir(folder)):
                return pid
        except OSError:
            continue
    return 0


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _command(pid: int) -> tuple[str, ...]:
    try:
        data = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(word.decode("utf-8", "replace") for word in data.split(b"\0") if word)
