"""The files of --slot-save-path: checks names, writes atomically, reads, and removes temporary files of a crash.

Every function blocks and runs on a worker, except at start-up. Must not interpret a file's content, and must not show
a client any other part of a path than the name that it sent.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence

from llamad.base.atomic_file import PIECE, PREFIX, create, replace, sweep

NAME_BYTES_MAX = 255
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A key's name as llamad/api/service/auth.py makes it. Nothing else that a client sends becomes a directory.
_KEY_FOLDER = re.compile(r"key-[0-9a-f]+").fullmatch
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class FileRefused(Exception):
    """`status` is 400, 404, 500 or 507; str() is a message for the client."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def check_name(name: str) -> None:
    """Raise FileRefused if the name could mean anything other than a file in the directory."""
    problem = ""
    if not name:
        problem = "is empty"
    elif "/" in name or "\\" in name:
        problem = "may not contain a separator"
    elif not name.strip("."):
        problem = "may not be only dots"
    elif any(c < " " or "\x7f" <= c <= "\x9f" for c in name):
        problem = "may not contain control characters"
    elif name.startswith(PREFIX):
        problem = f"may not begin with {PREFIX}"
    else:
        try:
            if len(name.encode()) > NAME_BYTES_MAX:
                problem = f"may have at most {NAME_BYTES_MAX} bytes"
        except UnicodeEncodeError:
            problem = "is not valid Unicode"
    if problem:
        raise FileRefused(400, f"The file's name {problem}")


class StateFile:
    """A file of `size` bytes that is open for reading. Reading fails if it has been truncated."""

    __slots__ = ("_fd", "_name", "size")

    def __init__(self, fd: int, name: str, size: int) -> None:
        self._fd = fd
        self._name = name
        self.size = size

    def read(self, n_bytes: int) -> bytes:
        """Return the first n_bytes of the file, or all if it has fewer."""
        data = bytearray(min(n_bytes, self.size))
        self.read_into(memoryview(data), 0)
        return bytes(data)

    def read_into(self, view: memoryview, at: int) -> None:
        """Fill the view with the bytes from `at` on."""
        pos = 0
        while pos < len(view):
            n = os.preadv(self._fd, [view[pos : pos + PIECE]], at + pos)
            if n == 0:
                raise FileRefused(500, f"The file {self._name} was truncated while it was being read")
            pos += n


class StateFiles:
    """The directory. `key` is a key's name, whose files have a subdirectory, or "" if there are no keys."""

    def __init__(self, path: str) -> None:
        """Raises OSError if the directory does not exist or is not writable."""
        self._root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            probe, name = create(self._root)
            os.close(probe)
            os.unlink(name, dir_fd=self._root)
            _sweep(self._root)
        except BaseException:
            os.close(self._root)
            raise

    def close(self) -> None:
        os.close(self._root)

    def write(self, key: str, name: str, pieces: Sequence[bytes | memoryview]) -> int:
        """Write the pieces to the file, which is replaced atomically. Return its size."""
        check_name(name)
        with _client_errors(name, "written"), self._folder(key, make=True) as folder:
            _check_target(folder, name)
            return replace(folder, name, pieces)

    def size(self, key: str, name: str) -> int:
        """Return the file's size."""
        check_name(name)
        with _client_errors(name, "read"), self._file(key, name) as (_, n_bytes):
            return n_bytes

    @contextlib.contextmanager
    def open(self, key: str, name: str, bytes_max: int) -> Iterator[StateFile]:
        """Open a file for reading. A file that is larger than bytes_max is rejected before it is read."""
        check_name(name)
        with _client_errors(name, "read"), self._file(key, name) as (fd, n_bytes):
            if n_bytes > bytes_max:
                raise FileRefused(
                    400, f"The file {name} has {n_bytes} bytes; the largest state of a slot has {bytes_max}"
                )
            yield StateFile(fd, name, n_bytes)

    @contextlib.contextmanager
    def _folder(self, key: str, make: bool) -> Iterator[int]:
        if not key:
            yield self._root
            return
        if not _KEY_FOLDER(key):
            raise FileRefused(500, "The key's name is not a valid directory name")
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(key, 0o700, dir_fd=self._root)
                os.fsync(self._root)
        folder = os.open(key, _FOLDER, dir_fd=self._root)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _file(self, key: str, name: str) -> Iterator[tuple[int, int]]:
        """Open a file for reading and yield its descriptor and size. A pipe must not block the thread (O_NONBLOCK)."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with self._folder(key, make=False) as folder:
            _check_target(folder, name)
            fd = os.open(name, flags, dir_fd=folder)
            try:
                info = os.fstat(fd)
                if not stat.S_ISREG(info.st_mode):
                    raise _not_regular(name)
                yield fd, info.st_size
            finally:
                os.close(fd)


def _not_regular(name: str) -> FileRefused:
    return FileRefused(400, f"{name} is not a regular file")


def _check_target(folder: int, name: str) -> None:
    """Raise FileRefused if something other than a regular file has this name. Links are neither followed nor
    replaced."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise _not_regular(name)


def _sweep(root: int) -> None:
    """Remove temporary files that killed processes have left, here and in the keys' directories."""
    sweep(root)
    for name in filter(_KEY_FOLDER, os.listdir(root)):
        try:
            folder = os.open(name, _FOLDER, dir_fd=root)
        except OSError:
            continue  # not a directory, or not ours
        try:
            sweep(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def _client_errors(name: str, verb: str) -> Iterator[None]:
    """Turn a system error into one that the client may see: it has the reason, but no path."""
    try:
        yield
    except FileNotFoundError:
        if verb != "read":
            raise FileRefused(500, "The directory of --slot-save-path is gone") from None
        raise FileRefused(404, f"There is no file {name}") from None
    except MemoryError:
        raise FileRefused(507, f"Not enough memory for the file {name}") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        if error.errno == errno.ELOOP:
            raise _not_regular(name) from None
        status = 507 if error.errno in _FULL else 500
        raise FileRefused(status, f"The file {name} cannot be {verb}: {reason}") from None
