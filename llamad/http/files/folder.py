"""Opens the file that a URL's path names inside one folder, and makes sure that no path leads out of the folder.

Called on worker threads, because a disk may be slow. The names of a path are checked first. Then links are resolved,
and the real path is opened name by name without following links, so that a link made in between cannot lead out either.
"""

from __future__ import annotations

import errno
import os
import re
import stat

INDEX = "index.html"
# Longer paths are not looked up, because resolving a path takes one system call for each name.
PATH_MAX = 1024

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]").search
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK, because opening a FIFO for reading would wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors that a client's path can cause. Any other error is a fault of the machine.
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
    """There is no such file, or it may not be served."""


class IsFolder(Exception):
    """The path names a folder, without the slash at its end."""


def names_of(path: str) -> list[str]:
    """Return the names in a URL's decoded path; for a folder, the last one is its index file. Raises Missing for names
    that are never served: hidden files, "..", empty names, names with backslashes or control characters."""
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
    """A folder whose files are served. It may be a link and may be replaced meanwhile, so it is resolved each time."""

    def __init__(self, path: str) -> None:
        self._path = os.fsencode(os.path.abspath(path))

    def open(self, names: list[str]) -> int:
        """Open a regular file and return its descriptor. Raises Missing, IsFolder, or OSError if the machine fails."""
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
    """Raise IsFolder for a folder, and Missing for devices and FIFOs: opening or reading those could do anything."""
    if stat.S_ISDIR(info.st_mode):
        raise IsFolder
    if not stat.S_ISREG(info.st_mode):
        raise Missing


def refusal(path: str) -> str | None:
    """Return a line for the operator that says why the folder cannot be served, or None if it can."""
    try:
        os.listdir(path)
    except OSError as error:
        return f"{path}: {error.strerror}; name a folder that holds the files to serve"
    return None
