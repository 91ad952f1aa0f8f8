"""Answers of the server on disk, one file each, so that a chat that comes back after a restart gets their tokens.

All of them are in memory, too, so that a request never waits for the disk: find() and keep() run on any thread, the
rest on the writer's. A file is complete when it has its name, which is the digest of its bytes. Must not know what an
answer says: it is found by digests of what came before it.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import deque
from hashlib import blake2b

import msgspec

from llamad.base.fair_cache import FairCache
from llamad.models.cache_disk.faults import is_of_file, log_ignored, reason_of
from llamad.models.cache_disk.folder import Folder
from llamad.models.cache_disk.prefixes import DIGEST_BYTES, TOKEN_BYTES
from llamad.models.cache_disk.row_file import EntryBroken

BYTES_MAX = 32 << 20
LIMIT_PART = 16  # of the limit on all files, answers take at most this part
ENDING = ".turn"
MAGIC = b"LLDTURN\x01"  # the last byte is the version of the format
SAME_MAX = 8  # answers that are kept of one place in a conversation
BLOCK = 4096  # a file takes at least this much of a disk
PART_MAX = 8  # an answer that takes more than this part of the room is not kept
# A file that is used gets a new time of use once the one that it has is so old.
NOTE_SECONDS = 600.0


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """One answer. `salt_id` says which salt has made the digests, `owner` is the salted hash of the API key."""

    salt_id: bytes
    owner: str
    names: tuple[bytes, ...]  # digests by which it is found
    tokens: bytes
    data: bytes  # what else is known of it, as the layers above encode it


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode


def packed(answer: Answer) -> bytes:
    """Return the content of a file."""
    return MAGIC + _encode(answer)


def name_of(content: bytes) -> str:
    """Return the file's name."""
    return blake2b(content, digest_size=DIGEST_BYTES).hexdigest() + ENDING


def names(folder: Folder) -> list[str]:
    """Return the names of all files with answers. Raises OSError."""
    with folder.opened() as fd:
        return _names(fd)


def _names(folder: int) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(ENDING)]


def read(folder: int, name: str) -> tuple[Answer, float]:
    """Return an answer and the time of its last use, in seconds since the epoch. Raises OSError, EntryBroken."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise EntryBroken("it is not a regular file")
        content = file.read(BYTES_MAX + 1)
    if not content.startswith(MAGIC):
        raise EntryBroken("it is not an answer, or one of another version")
    if name_of(content) != name:
        raise EntryBroken("its checksum is wrong")
    try:
        answer = _decode(memoryview(content)[len(MAGIC) :])
    except msgspec.MsgspecError as error:
        raise EntryBroken(f"it cannot be read: {error}") from None
    if not answer.tokens or len(answer.tokens) % TOKEN_BYTES:
        raise EntryBroken("it has no tokens")
    return answer, info.st_mtime


class _Kept(msgspec.Struct, eq=False):
    name: str
    answer: Answer
    n_bytes: int
    used: float  # seconds since the epoch
    noted: float  # the time of use that the file itself has; 0: it is not written yet


class TurnFiles:
    """`limit` is the limit on all files of the folder; 0: none."""

    def __init__(self, folder: Folder, limit: int) -> None:
        self._folder = folder
        self._bytes_max = min(BYTES_MAX, limit // LIMIT_PART) if limit else BYTES_MAX
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all answers, but remove no files."""
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        self._files: dict[str, _Kept] = {}
        self._fair: FairCache[_Kept] = FairCache(self._bytes_max)  # the same, by owner
        self._by_digest: dict[bytes, list[_Kept]] = {}  # the newest one is the first
        self._unwritten: dict[str, _Kept] = {}
        self._removed: deque[str] = deque()  # files that are still on the disk
        self._ignored: set[str] = set()  # files that are broken or cannot be read

    def __len__(self) -> int:
        return len(self._files)

    @property
    def n_bytes(self) -> int:
        """Return the room that all answers take on the disk, with those that are not written yet."""
        return self._fair.n_bytes

    @property
    def is_behind(self) -> bool:
        """Whether files have to be written or removed."""
        return bool(self._unwritten or self._removed)

    def find(self, name: bytes) -> list[Answer]:
        """Return the answers with this digest, the newest one first."""
        with self._lock:
            same = self._by_digest.get(name, [])
            for one in same:
                one.used = time.time()
                self._fair.find(one.answer.owner, one.name)
            return [one.answer for one in same]

    def keep(self, answer: Answer) -> None:
        """Keep an answer, which gets to the disk later."""
        content = packed(answer)
        name, n_bytes = name_of(content), _disk_bytes(content)
        if n_bytes * PART_MAX > self._bytes_max:
            return
        with self._lock:
            if name not in self._files:
                self._unwritten[name] = one = _Kept(name, answer, n_bytes, time.time(), 0.0)
                self._add(one)

    def _add(self, one: _Kept) -> None:
        self._files[one.name] = one
        for name in one.answer.names:
            same = self._by_digest.setdefault(name, [])
            same.insert(0, one)
            del same[SAME_MAX:]
        for dropped in self._fair.put(one.answer.owner, one.name, one, one.n_bytes):
            self._forget(dropped)
            if dropped.noted:
                self._removed.append(dropped.name)

    def _forget(self, one: _Kept) -> None:
        del self._files[one.name]
        self._unwritten.pop(one.name, None)
        for name in one.answer.names:
            same = [other for other in self._by_digest.get(name, ()) if other is not one]
            if same:
                self._by_digest[name] = same
            else:
                self._by_digest.pop(name, None)

    # The writer's thread.

    def refresh(self, folder: int) -> list[tuple[str, str]]:
        """Bring the memory up to date with the folder. Return the names of broken files, and what is wrong with each.
        Raises OSError."""
        names = set(_names(folder))
        with self._lock:
            for one in [one for one in self._files.values() if one.noted and one.name not in names]:
                self._fair.remove(one.answer.owner, one.name)
                self._forget(one)
            new = names - self._files.keys() - set(self._removed) - self._ignored
        loaded, broken, unreadable = [], [], []
        for name in new:
            try:
                answer, used = read(folder, name)
                if answer.salt_id != self._folder.salt_id:
                    raise EntryBroken("the folder's salt has changed since")
                loaded.append(_Kept(name, answer, _disk_bytes(packed(answer)), used, used))
            except FileNotFoundError:
                continue
            except EntryBroken as error:
                self._ignored.add(name)
                broken.append((name, str(error)))
            except OSError as error:
                if not is_of_file(error):
                    raise
                unreadable.append((name, reason_of(error)))
        if unreadable:
            _names(folder)  # raises if it is the folder that cannot be read
            self._ignored.update(name for name, _ in unreadable)
            log_ignored(unreadable)
        for one in sorted(loaded, key=lambda one: one.used):
            with self._lock:
                if one.name not in self._files:
                    self._add(one)
        self._note_uses()
        return broken

    def _note_uses(self) -> None:
        for one in list(self._files.values()):
            if one.noted and one.used > one.noted + NOTE_SECONDS:
                one.noted = one.used
                with contextlib.suppress(FileNotFoundError):
                    self._folder.touch(one.name)

    def write(self) -> int:
        """Remove the files of what was dropped, and write what is new. Return the number of bytes. Raises OSError."""
        n_bytes = 0
        while self._removed:
            self._folder.remove(self._removed[0])
            self._removed.popleft()
        for one in list(self._unwritten.values()):
            n_bytes += self._folder.write(one.name, [packed(one.answer)])
            with self._lock:
                one.noted = time.time()
                if self._unwritten.pop(one.name, None) is None:  # it was dropped while it was being written
                    self._removed.append(one.name)
        return n_bytes


def _disk_bytes(content: bytes) -> int:
    return -(-len(content) // BLOCK) * BLOCK
