"""The thread that writes: it copies new entries of the cache memories to the disk, and keeps the limit.

One thread, at low priority. It also builds the index when it starts, and notices files that others add or remove.
An entry is pinned while it is written, so a file has either all of it or is never renamed.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from array import array
from collections.abc import Iterator

from llamad.models.cache_disk.entry_file import Description, EntryBroken, EntryFile, pieces, tokens_in
from llamad.models.cache_disk.faults import Faults
from llamad.models.cache_disk.folder import Folder, file_name
from llamad.models.cache_disk.index import Entry, Index
from llamad.models.cache_disk.prefixes import BLOCK_TOKENS, HASH_BYTES, Chain, Group
from llamad.models.cache_disk.source import Source
from llamad.protocol.cache_memory import EntryInfo, checksum

log = logging.getLogger("llamad.cache")

TOKENS_MIN = 256  # shorter prompts are computed as fast as they are found
POLL_SECONDS = 1.0
REFRESH_SECONDS = 10.0
NICE = 10
# A write that takes longer is given up, because the engine cannot use the memory of the entry meanwhile.
WRITE_SECONDS = 30.0
WRITE_BYTES_PER_SECOND = 50e6
DESCRIPTION_BYTES = 4096  # more than a description has besides its hashes


class Counts:
    """Counters for the metrics."""

    def __init__(self) -> None:
        self.n_writes = self.n_bytes_written = self.n_evicted = 0  # by the writer's thread
        self.n_reads = self.n_tokens_read = self.n_late = 0  # by the event loop
        self.n_broken = 0  # by all threads, under the lock
        self.lock = threading.Lock()


class Writer:
    """`bytes_max` is the limit on all files; 0: none."""

    def __init__(self, folder: Folder, index: Index, faults: Faults, counts: Counts, bytes_max: int) -> None:
        self._folder = folder
        self._index = index
        self._faults = faults
        self._counts = counts
        self._bytes_max = bytes_max
        self._sources: list[Source] = []
        # Hashes of the entries in the cache memories, by the entry's number; empty if it is not kept on disk.
        self._seen: dict[Source, dict[int, tuple[bytes, ...]]] = {}
        self._ignored: set[str] = set()  # names of files that are broken and cannot be removed
        self._t_refresh = 0.0
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._n_passes = 0
        self._is_behind = False  # entries are left that could not be written
        self._thread = threading.Thread(target=self._run, name="llamad-cache-disk", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, source: Source) -> None:
        """Write the entries of this cache memory from now on."""
        self._sources = [*self._sources, source]

    def remove(self, source: Source) -> None:
        """Write what is left in this cache memory, which gets no more entries, and then forget it."""
        source.is_leaving = True

    def wake(self) -> None:
        """Look for new entries now."""
        self._wake.set()

    def flush(self, seconds: float) -> bool:
        """Return when all entries of the cache memories are on disk, or False after this time. Blocks."""
        t_end = time.monotonic() + seconds
        with self._settled:
            n_begun = self._n_passes + 1  # a pass that is running may have missed the last entries
            self.wake()
            while self._n_passes <= n_begun and (left := t_end - time.monotonic()) > 0:
                self._settled.wait(min(left, 0.1))
                self.wake()
            return self._n_passes > n_begun and not self._is_behind

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while True:
            try:
                self.step()
            except Exception as error:  # a bug must not end the thread
                log.exception("writing the cache on disk failed")
                self._faults.failed(error)
            with self._settled:
                self._n_passes += 1
                self._settled.notify_all()
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()

    def step(self) -> None:
        """Do what is due: read the folder, write new entries, keep the limit."""
        self._is_behind = True
        if self._faults.is_paused:
            return
        try:
            if time.monotonic() >= self._t_refresh:
                self.refresh()
            for source in self._sources:
                is_leaving = source.is_leaving
                self._save_new(source)
                if is_leaving:
                    self._sources = [one for one in self._sources if one is not source]
                    del self._seen[source]
        except (OSError, MemoryError) as error:
            self._faults.failed(error)
            return
        self._is_behind = False
        self._faults.worked()

    # The folder.

    def refresh(self) -> None:
        """Bring the index up to date with the folder. Raises OSError."""
        self._folder.sweep()
        names = set(self._folder.names())
        for name in self._index.names() - names:
            self._index.remove(name)
        with self._folder.opened() as folder:
            for name in names - self._index.names() - self._ignored:
                self._load(folder, name)
        self._make_room(0, None)
        if not self._t_refresh:
            log.info(
                "--cache-disk %s: %d prompts, %d MiB",
                self._folder.path,
                len(self._index),
                self._index.n_bytes >> 20,
            )
        self._t_refresh = time.monotonic() + REFRESH_SECONDS

    def _load(self, folder: int, name: str) -> None:
        """Add a file to the index; a broken one is removed."""
        try:
            with EntryFile(folder, name) as file:
                if file.description.salt_id != self._folder.salt_id:
                    raise EntryBroken("the folder's salt has changed since")
                self._index.add(entry_of(name, file))
        except FileNotFoundError:
            return
        except EntryBroken as error:
            self.drop(name, str(error))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EIO, errno.ELOOP, errno.EPERM):
                raise
            self.drop(name, error.strerror or str(error))

    def drop(self, name: str, reason: str) -> None:
        """Remove a broken file. One that cannot be removed is ignored from now on."""
        with self._counts.lock:
            self._counts.n_broken += 1
        self._index.remove(name)
        log.warning("the entry %s of the cache on disk is removed: %s", name, reason)
        try:
            self._folder.remove(name)
        except OSError:
            self._ignored.add(name)

    def _make_room(self, n_bytes: int, entry: Entry | None) -> bool:
        """Remove entries until n_bytes more fit. Return False if `entry`, which needs them, is worth less."""
        if not self._bytes_max:
            return True
        if n_bytes > self._bytes_max:
            return False
        removed = self._index.to_remove(self._index.n_bytes + n_bytes - self._bytes_max, time.time(), entry)
        for one in removed or ():
            self._remove(one)
            self._counts.n_evicted += 1
        return removed is not None

    def _remove(self, entry: Entry) -> None:
        self._folder.remove(entry.name)
        self._index.remove(entry.name)

    # The cache memories.

    def _save_new(self, source: Source) -> None:
        """Write the entries that are new, the last used first. Raises OSError, MemoryError."""
        fingerprint = source.fingerprint
        infos = {info.id: info for info in source.memory.entries()} if fingerprint else {}
        seen = self._seen.setdefault(source, {})
        for id in seen.keys() - infos.keys():
            del seen[id]
        for info in sorted(infos.values(), key=lambda one: one.used, reverse=True):
            if info.id not in seen:
                view = source.memory.pin(info.id)
                if view is None:
                    continue
                try:
                    if source.fingerprint != fingerprint:
                        return  # another engine has begun; what is pinned belongs to the last one
                    seen[info.id] = self._save(source, fingerprint, info, view)
                except TimeoutError:
                    seen[info.id] = ()  # it would take as long again
                    raise
                except EntryBroken:
                    seen[info.id] = ()  # an engine has gone wrong; its next one drops the entry
                finally:
                    view.release()
                    source.memory.unpin(info.id)
        held = frozenset(block for hashes in seen.values() for block in hashes)
        if held != source.held:
            source.held = held

    def _save(self, source: Source, fingerprint: str, info: EntryInfo, view: memoryview) -> tuple[bytes, ...]:
        """Write an entry unless it is there or is not worth it. Return the hashes of its blocks."""
        group = self._group(source, fingerprint, info)
        if group is None or info.n_tokens < TOKENS_MIN or checksum(view) != info.checksum:
            return ()
        tokens = tokens_in(view, info.n_tokens)
        if min(array("i", tokens)) < 0:
            return ()  # it has images or sound
        chain = Chain(self._folder.salt, group, tokens)
        hashes, end = chain.hashes, chain.end(info.n_tokens)
        now = time.time()
        entry = Entry(
            name=file_name(end),
            group=group,
            n_tokens=info.n_tokens,
            n_bytes=len(view),
            is_whole=source.is_whole,
            has_session=info.session != 0,
            created=now,
            used=now,
            hashes=hashes,
            end=end,
        )
        if entry.name not in self._index and not self._is_covered(entry, chain):
            self._keep(source, entry, view)
        return tuple(hashes)

    def _keep(self, source: Source, entry: Entry, view: memoryview) -> None:
        """Write an entry if there is room for it, in place of those that it supersedes."""
        superseded = self._index.superseded(entry)
        n_bytes = entry.n_bytes + DESCRIPTION_BYTES + HASH_BYTES * len(entry.hashes)
        if self._bytes_max and self._index.n_bytes + n_bytes > self._bytes_max:
            while superseded:  # before the write, because the limit holds at all times
                self._remove(superseded.pop())
        if self._make_room(n_bytes, entry):
            self._write(source, entry, view)
            for one in superseded:
                self._remove(one)

    def _group(self, source: Source, fingerprint: str, info: EntryInfo) -> Group | None:
        number, base, n_base = info.adapters
        key_name = source.key_of(info.owner)
        if key_name is None or base or n_base:
            return None  # an activated adapter has computed only a part of it
        return Group(fingerprint, self._folder.owner(key_name), number)

    def _is_covered(self, entry: Entry, chain: Chain) -> bool:
        """Return whether another entry on disk has all blocks of this one. A few tokens more are not worth writing
        all of it again."""
        if entry.is_whole:
            return False
        found = self._index.find(chain)
        return found is not None and found.n_tokens + BLOCK_TOKENS > entry.n_tokens

    def _write(self, source: Source, entry: Entry, view: memoryview) -> None:
        def describe(tokens_sum: int, sums: list[int]) -> Description:
            return Description(
                group=entry.group,
                salt_id=self._folder.salt_id,
                model=source.name_of(),
                n_tokens=entry.n_tokens,
                n_bytes=len(view),
                is_whole=entry.is_whole,
                has_session=entry.has_session,
                created=entry.created,
                hashes=b"".join(entry.hashes),
                end=entry.end,
                tokens_sum=tokens_sum,
                sums=sums,
            )

        entry.n_bytes = self._folder.write(
            entry.name, _timed(pieces(view, entry.n_tokens, describe), len(view))
        )
        self._index.add(entry)
        self._counts.n_writes += 1
        self._counts.n_bytes_written += entry.n_bytes


def _timed(pieces: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """Yield the pieces of a file. Raises TimeoutError if the disk takes them too slowly."""
    seconds = WRITE_SECONDS + n_bytes / WRITE_BYTES_PER_SECOND
    t_end = time.monotonic() + seconds
    for piece in pieces:
        if time.monotonic() > t_end:
            raise TimeoutError(f"writing {n_bytes >> 20} MiB takes more than {seconds:.0f} s")
        yield piece


def entry_of(name: str, file: EntryFile) -> Entry:
    """Return the index's view of a file."""
    description = file.description
    return Entry(
        name=name,
        group=description.group,
        n_tokens=description.n_tokens,
        n_bytes=file.size,
        is_whole=description.is_whole,
        has_session=description.has_session,
        created=description.created,
        used=file.used,
        hashes=file.hashes(),
        end=description.end,
    )
