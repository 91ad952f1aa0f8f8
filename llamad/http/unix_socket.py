"""Binds a Unix socket to its file safely, and removes the file again.
Runs at start-up and at the end; never removes a file that another process may be using."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat

# The owner and the group may connect.
MODE = 0o660


def is_path(host: str) -> bool:
    return host.startswith("/") or host.endswith(".sock")


class SocketFile:
    """The file of a Unix socket. It remembers the file's identity, so that a later file of the same name is kept."""

    __slots__ = ("_identity", "_path")

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        info = os.stat(path)
        self._identity = (info.st_dev, info.st_ino)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            info = os.stat(self._path)
            if (info.st_dev, info.st_ino) == self._identity:
                os.unlink(self._path)


def bind(path: str) -> tuple[socket.socket, SocketFile]:
    """Return a socket that is bound, but does not listen yet. Raises OSError with a message for the operator."""
    _clear_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        # Nobody can connect before listen(), so nobody can use the wrong permissions of this moment.
        os.chmod(path, MODE)
        return sock, SocketFile(path)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen on {path}: {error.strerror or error}") from None


def _clear_stale(path: str) -> None:
    """Remove a socket file that nobody listens on, such as one left by a crash."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(
            errno.EEXIST, f"cannot listen on {path}: it exists and is not a socket; remove it first"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refused = probe.connect_ex(path) == errno.ECONNREFUSED
    if not refused:
        raise OSError(
            errno.EADDRINUSE, f"cannot listen on {path}: another process listens there; stop it first"
        )
    os.unlink(path)
