"""Owns the contents of a folder's files: small ones are read, hashed and compressed once and kept while they do not
change; large ones stay on the disk and are read piece by piece.

Called on worker threads, several at once. A kept file is looked at on the disk before every use. No descriptor is held
between two calls: slow clients cost none.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import zlib
from collections import OrderedDict

import msgspec

from llamad.http.files.folder import Folder, IsFolder, Missing
from llamad.http.files.media_types import is_compressible

# Larger files are not kept in memory.
SMALL_MAX = 4 * 1024 * 1024
# What all kept files and their compressed forms may have together.
KEPT_MAX = 64 * 1024 * 1024
# A kept file's own cost beside its bytes, so that many empty ones are bounded too.
ENTRY_BYTES = 1024
# Compression that saves less than this share is not worth the client's work.
SAVED_MIN = 1 / 16
# A large file changed this lately can change again within the same tick of the clock.
FRESH_SECONDS = 2

State = tuple[int, int, int, int, int]


class Changed(Exception):
    """The file is no longer the one that was found."""


class Found(msgspec.Struct, frozen=True):
    """A file as it is now. `data` is None for a large one; `zipped` is empty where compression does not pay."""

    names: list[str]
    state: State
    tag: str  # as in ETag; weak for a large file that may change unseen
    data: bytes | None
    zipped: bytes

    @property
    def size(self) -> int:
        return self.state[2]

    @property
    def modified(self) -> int:
        return self.state[3] // 1_000_000_000

    @property
    def cost(self) -> int:
        return ENTRY_BYTES + len(self.data or b"") + len(self.zipped)


class Library:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._kept: OrderedDict[str, Found] = OrderedDict()  # the one used last comes last
        self._n_bytes = 0
        self._lock = threading.Lock()

    def find(self, names: list[str]) -> Found:
        """Raises as Folder.open()."""
        file = self._folder.open(names)
        try:
            state = _state(file)
            key = "/".join(names)
            found = self._find_kept(key, state)
            if found is None:
                if state[2] > SMALL_MAX:
                    return _large(names, state)
                found = _small(names, state, _read(file, state[2]))
                if _state(file) == state and found.size == state[2]:
                    self._keep(key, found)
            return found
        finally:
            os.close(file)

    def _find_kept(self, key: str, state: State) -> Found | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None or found.state != state:
                return None
            self._kept.move_to_end(key)
            return found

    def _keep(self, key: str, found: Found) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._n_bytes += found.cost - (old.cost if old is not None else 0)
            self._kept[key] = found
            while self._n_bytes > KEPT_MAX:
                self._n_bytes -= self._kept.popitem(last=False)[1].cost

    def read(self, found: Found, start: int, length: int) -> bytes:
        """A piece of a large file. Raises Changed where the file is another one by now."""
        try:
            file = self._folder.open(found.names)
        except (Missing, IsFolder):
            raise Changed from None
        try:
            data = os.pread(file, length, start)
            # After the read: a change before it shows too.
            if _state(file) != found.state or len(data) != length:
                raise Changed
            return data
        finally:
            os.close(file)


def _state(file: int) -> State:
    info = os.fstat(file)
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _read(file: int, size_max: int) -> bytes:
    """All of a file, which may shrink or grow meanwhile."""
    parts: list[bytes] = []
    left = size_max
    while left > 0 and (part := os.read(file, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _small(names: list[str], state: State, data: bytes) -> Found:
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    zipped = _zip(data) if is_compressible(names[-1]) else b""
    device, inode, _, modified, changed = state
    return Found(names, (device, inode, len(data), modified, changed), tag, data, zipped)


def _zip(data: bytes) -> bytes:
    """In gzip's format, without a time: the same bytes for the same file."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zipped = packer.compress(data) + packer.flush()
    return zipped if len(zipped) < len(data) * (1 - SAVED_MIN) else b""


def _large(names: list[str], state: State) -> Found:
    """Hashing gigabytes for a header takes too long: the tag is that of the file's identity and times."""
    tag = f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:32]}"'
    if time.time_ns() - max(state[3:]) < FRESH_SECONDS * 1_000_000_000:
        tag = "W/" + tag
    return Found(names, state, tag, None, b"")
