"""A supervisor that holds listening sockets and starts daemons on them in turn, as a socket unit does."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from support.live_daemon import Live

# Moves descriptors to the numbers that are agreed on, and says whose they are; then it becomes the daemon.
PASS_ON = """
import fcntl, os, sys
fds = [int(fd) for fd in sys.argv[1].split(",")]
high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 256) for fd in fds]
for fd in fds:
    os.close(fd)
for i, fd in enumerate(high):
    os.dup2(fd, 3 + i)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(fds)))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Holder:
    """Holds listening sockets and starts daemons that inherit them, one after another."""

    def __init__(self, *addresses: str) -> None:
        """Without an address: a free port of 127.0.0.1. Others are paths of Unix sockets."""
        self.sockets: list[socket.socket] = []
        for address in addresses or ("",):
            if address:
                sock = socket.socket(socket.AF_UNIX)
                sock.bind(address)
                sock.listen(128)
            else:
                sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
            self.sockets.append(sock)

    @property
    def port(self) -> int:
        return int(self.sockets[0].getsockname()[1])

    def start(self, *flags: str, **options: Any) -> Live:
        fds = [sock.fileno() for sock in self.sockets]
        before = [sys.executable, "-c", PASS_ON, ",".join(map(str, fds))]
        return Live(*flags, before=before, pass_fds=fds, **options)

    def inodes(self) -> set[int]:
        return {os.fstat(sock.fileno()).st_ino for sock in self.sockets}

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in self.sockets:
            sock.close()
