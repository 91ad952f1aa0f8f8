"""Owns the way from a URL's path to an open file below one folder, and that no path leads out of it.

Called on worker threads: a disk may be slow. A path is refused by its names first. Links are then resolved, and what
they lead to is opened name by name without following any, so that a link made in between leads nowhere either.
"""

from __future__ import annotations

import errno
import os
import re
import stat

INDEX = "index.html"
# Longer paths are not looked up: resolving takes a system call a name.
PATH_MAX = 1024

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]").search
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a FIFO for reading waits for a writer, unless told not to.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What a path can do wrong. Anything else is the machine's fault.
_ABSENT = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENXIO,
}


class Missing(Exception):
    """There is no such file; or none that may be served."""


class IsFolder(Exception):
    """The path is that of a folder, without the slash at its end."""


def names_of(path: str) -> list[str]:
    """The names in a URL's decoded path, with that of the index for a folder. Raises Missing for what no file may be
    asked for by: hidden files, "..", empty names, backslashes, control characters."""
    names = path[1:].split("/")
    if not names[-1]:
        names[-1] = INDEX
    if len(path) > PATH_MAX or not path.startswith("/"):
        raise Missing
    for name in names:
        if not name or name.startswith(".") or _FORBIDDEN(name):
            raise Missing
    return names


class Folder:
    """The folder itself may be a link, and may be replaced while it is served: it is looked up anew each time."""

    def __init__(self, path: str) -> None:
        self._path = os.fsencode(os.path.abspath(path))

    def open(self, names: list[str]) -> int:
        """The descriptor of a regular file. Raises Missing, IsFolder, or OSError where the machine fails."""
        try:
            return self._open([name.encode() for name in names])
        except OSError as error:
            if error.errno in _ABSENT:
                raise Missing from None
            raise

    def _open(self, names: list[bytes]) -> int:
        root = os.path.realpath(self._path)
        inside = root.rstrip(b"/") + b"/"
        real = os.path.realpath(os.path.join(root, *names))
        if not real.startswith(inside):
            raise Missing
        *folders, last = real[len(inside) :].split(b"/")
        at = os.open(root, _FOLDER)
        try:
            for name in folders:
                below = os.open(name, _FOLDER, dir_fd=at)
                os.close(at)
                at = below
            _check(os.stat(last, dir_fd=at, follow_symlinks=False))
            file = os.open(last, _FILE, dir_fd=at)
        finally:
            os.close(at)
        try:
            _check(os.fstat(file))
        except BaseException:
            os.close(file)
            raise
        return file


def _check(info: os.stat_result) -> None:
    """Opening a device, or reading a FIFO, could do anything."""
    if stat.S_ISDIR(info.st_mode):
        raise IsFolder
    if not stat.S_ISREG(info.st_mode):
        raise Missing


def refusal(path: str) -> str | None:
    """Why a folder cannot be served, for the operator; None if it can."""
    try:
        os.listdir(path)
    except OSError as error:
        return f"{path}: {error.strerror}; name a folder that holds the files to serve"
    return None
