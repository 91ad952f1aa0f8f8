"""The folder of the cache on disk: its salt, the names of its files, and who may read them.

Every function blocks. Any thread; several daemons and `llamad cache` may use one folder at the same time. The files are
in a subfolder that only the daemon's user can read. The folder may disappear and come back at any moment, so it is
opened again for each operation.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator

from llamad.base import atomic_file

SUBFOLDER = "llamad-prompts"
SALT = "salt"
SALT_BYTES = 32
_NAME = re.compile(r"[0-9a-f]{32}\.(block|end)").fullmatch
_OLD_NAME = re.compile(r"[0-9a-f]{32}\.kv").fullmatch  # of the format before blocks
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class FolderError(ValueError):
    """The folder cannot be used. str() says why and what to do."""


class Folder:
    """The folder that --cache-disk names. `salt` is made with the subfolder, and stays with it. It is empty
    before prepare()."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.salt = self.salt_id = b""

    @property
    def is_used(self) -> bool:
        """Whether it has been used as a cache."""
        return os.path.isdir(os.path.join(self.path, SUBFOLDER))

    def prepare(self) -> None:
        """Make sure that entries can be written. Raises FolderError if the folder does not exist or is read-only."""
        if not os.path.isdir(self.path):
            raise FolderError(f"{self.path} is not a folder; create it, or name another one")
        try:
            with self.opened() as folder:
                os.fchmod(folder, 0o700)
                probe, name = atomic_file.create(folder)
                try:  # while it is locked, because the sweep of another daemon would remove it
                    os.unlink(name, dir_fd=folder)
                finally:
                    os.close(probe)
                self._take(_salt(folder))
        except OSError as error:
            raise FolderError(
                f"{self.path} cannot be used: {error.strerror}; the daemon's user must be able to write there"
            ) from None

    def _take(self, salt: bytes) -> None:
        self.salt = salt
        self.salt_id = hashlib.sha256(salt).digest()[:8]

    def is_replaced(self, folder: int) -> bool:
        """Return whether the subfolder `folder` has another salt than at the last look, because a file system was
        mounted there, or because another daemon found the folder empty. From now on its salt is used. Raises
        OSError."""
        salt = _read_salt(folder)
        if salt is None or len(salt) != SALT_BYTES or salt == self.salt:
            return False
        self._take(salt)
        return True

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of the subfolder, which is made if the folder is there. Raises OSError."""
        path = os.path.join(self.path, SUBFOLDER)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        folder = os.open(path, _FLAGS | os.O_NOFOLLOW)
        try:
            yield folder
        finally:
            os.close(folder)

    def names(self) -> list[str]:
        """Return the names of all entries. Raises OSError."""
        with self.opened() as folder:
            return entry_names(folder)

    def sweep(self) -> int:
        """Remove temporary files of processes that have ended, and files of an older format, whose number is returned.
        Raises OSError."""
        n_old = 0
        with self.opened() as folder:
            atomic_file.sweep(folder)
            for name in os.listdir(folder):
                if _OLD_NAME(name):
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=folder)
                        n_old += 1
        return n_old

    def write(self, name: str, pieces: Iterable[bytes | memoryview]) -> int:
        """Write an entry and return its size. Raises OSError."""
        with self.opened() as folder:
            if not os.path.exists(os.path.join(self.path, SUBFOLDER, SALT)):
                _write_salt(folder, self.salt)  # the folder was emptied: the next daemon must have this salt
            return atomic_file.replace(folder, name, pieces)

    def remove(self, name: str) -> None:
        """Remove an entry, if it is there. Raises OSError."""
        with contextlib.suppress(FileNotFoundError), self.opened() as folder:
            os.unlink(name, dir_fd=folder)

    def touch(self, name: str) -> None:
        """Note that an entry was used now. Raises OSError."""
        with self.opened() as folder:
            os.utime(name, dir_fd=folder, follow_symlinks=False)

    def owner(self, key_name: str) -> str:
        """Return the salted hash of an API key's name; "" if there is no key."""
        if not key_name:
            return ""
        return hashlib.blake2b(key_name.encode(), key=self.salt, digest_size=16).hexdigest()


def entry_names(folder: int) -> list[str]:
    """Return the names of all entries in a subfolder. Raises OSError."""
    return [name for name in os.listdir(folder) if _NAME(name)]


def _read_salt(folder: int) -> bytes | None:
    """Return the folder's salt, None if there is none. It is damaged if it has another length. Raises OSError."""
    try:
        fd = os.open(SALT, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(SALT_BYTES + 1)


def _salt(folder: int) -> bytes:
    """Return the folder's salt, and make it if there is none. Raises OSError."""
    while True:
        salt = _read_salt(folder)
        if salt is None:
            _write_salt(folder, secrets.token_bytes(SALT_BYTES))
        elif len(salt) == SALT_BYTES:
            return salt
        else:
            os.unlink(SALT, dir_fd=folder)  # no salt of ours; what it has hashed cannot be found any more


def _write_salt(folder: int, salt: bytes) -> None:
    """Write the salt unless there is one by now: another daemon may start at the same time."""
    fd, temporary = atomic_file.create(folder)
    try:
        os.write(fd, salt)
        os.fsync(fd)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, SALT, src_dir_fd=folder, dst_dir_fd=folder)
        os.unlink(temporary, dir_fd=folder)
        os.fsync(folder)
    finally:
        os.close(fd)
