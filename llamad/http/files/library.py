"""The contents of a folder's files. Small files are read, hashed and compressed once, and kept in memory until they
change. Large files stay on the disk and are read piece by piece.

Called on several worker threads at once. Before every use of a kept file, its state on the disk is checked. No
descriptor is held between two calls, so slow clients cost none.
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

# Files larger than this are not kept in memory.
SMALL_MAX = 4 * 1024 * 1024
# The most bytes of all kept files and their compressed forms together.
KEPT_MAX = 64 * 1024 * 1024
# What a kept file costs in addition to its bytes, so that the number of empty ones is bounded, too.
ENTRY_BYTES = 1024
# A compressed form that saves less than this share is not worth the client's work.
SAVED_MIN = 1 / 16
# A large file that changed less than this ago can change again within the same tick of the file system's clock.
FRESH_SECONDS = 2

State = tuple[int, int, int, int, int]


class Changed(Exception):
    """The file has changed since it was found."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file in its current state. `data` is None for a large file. `zipped` is empty if compression does not pay."""

    names: list[str]
    state: State
    tag: str  # the value of ETag; it is weak for a large file that may change unnoticed
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
        self._kept: OrderedDict[str, StoredFile] = OrderedDict()  # the most recently used one is the last
        self._n_bytes = 0
        self._lock = threading.Lock()

    def find(self, names: list[str]) -> StoredFile:
        """Return the file, from memory if it has not changed. Raises what Folder.open() raises."""
        file = self._folder.open(names)
        try:
            state = _state(file)
            key = "/".join(names)
            stored = self._find_kept(key, state)
            if stored is None:
                if state[2] > SMALL_MAX:
                    return _large(names, state)
                stored = _small(names, state, _read(file, state[2]))
                if _state(file) == state and stored.size == state[2]:
                    self._keep(key, stored)
            return stored
        finally:
            os.close(file)

    def _find_kept(self, key: str, state: State) -> StoredFile | None:
        with self._lock:
            stored = self._kept.get(key)
            if stored is None or stored.state != state:
                return None
            self._kept.move_to_end(key)
            return stored

    def _keep(self, key: str, stored: StoredFile) -> None:
        with self._lock:
            old = self._kept.pop(key, None)
            self._n_bytes += stored.cost - (old.cost if old is not None else 0)
            self._kept[key] = stored
            while self._n_bytes > KEPT_MAX:
                self._n_bytes -= self._kept.popitem(last=False)[1].cost

    def read(self, stored: StoredFile, start: int, length: int) -> bytes:
        """Return a piece of a large file. Raises Changed if the file has changed meanwhile."""
        try:
            file = self._folder.open(stored.names)
        except (Missing, IsFolder):
            raise Changed from None
        try:
            data = os.pread(file, length, start)
            # The state is checked after the read, so that a change before or during the read is noticed.
            if _state(file) != stored.state or len(data) != length:
                raise Changed
            return data
        finally:
            os.close(file)


def _state(file: int) -> State:
    info = os.fstat(file)
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns


def _read(file: int, size_max: int) -> bytes:
    """Read the file up to `size_max` bytes; it may shrink or grow meanwhile."""
    pieces: list[bytes] = []
    left = size_max
    while left > 0 and (piece := os.read(file, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _small(names: list[str], state: State, data: bytes) -> StoredFile:
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    zipped = _zip(data) if is_compressible(names[-1]) else b""
    device, inode, _, modified, changed = state
    return StoredFile(names, (device, inode, len(data), modified, changed), tag, data, zipped)


def _zip(data: bytes) -> bytes:
    """Compress in gzip's format without a time, so that the same file gives the same bytes. Return b"" if it saves too
    little."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zipped = packer.compress(data) + packer.flush()
    return zipped if len(zipped) < len(data) * (1 - SAVED_MIN) else b""


def _large(names: list[str], state: State) -> StoredFile:
    """Return a large file without its data. Its tag is made from its identity and times, because hashing gigabytes
    would take too long."""
    tag = f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:32]}"'
    if time.time_ns() - max(state[3:]) < FRESH_SECONDS * 1_000_000_000:
        tag = "W/" + tag
    return StoredFile(names, state, tag, None, b"")
