"""The thread that writes: it cuts new entries of the cache memories into rows, writes those that are not on disk, and
keeps the limit.

One thread, at low priority until the daemon ends. It also builds the index when it starts, and notices files that
others add or remove.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence

import msgspec

from llamad.base.clock import clock_us
from llamad.models.cache_disk.copies import Copies, Gone
from llamad.models.cache_disk.faults import Faults
from llamad.models.cache_disk.folder import Folder
from llamad.models.cache_disk.index import Index, Stored, stored, value_of
from llamad.models.cache_disk.prefixes import Chain, Group
from llamad.models.cache_disk.row_file import Description, file_bytes, parts
from llamad.models.cache_disk.row_files import RowFiles
from llamad.models.cache_disk.source import Source
from llamad.models.cache_disk.state_rows import Row, cut, rows_of
from llamad.models.cache_disk.turn_files import TurnFiles
from llamad.protocol.cache_memory import EntryInfo, checksum
from llamad.ses1.ses1 import Layout, StateError

log = logging.getLogger("llamad.cache")

TOKENS_MIN = 256  # shorter prompts are computed as fast as they are found
POLL_SECONDS = 1.0
REFRESH_SECONDS = 10.0
NICE = 10
# A write that takes longer is given up, because everything else waits for it.
WRITE_SECONDS = 30.0
WRITE_BYTES_PER_SECOND = 50e6
# When room is made, a little more than is needed, as long as it is worth less: finding out takes a while.
SPARE_PART = 64
# A file that is used in memory gets a new time of use once the one that it has is so old.
NOTE_SECONDS = 600.0


class Counts:
    """Counters for the metrics."""

    def __init__(self) -> None:
        self.n_writes = self.n_bytes_written = self.n_evicted = 0  # by the writer's thread
        self.n_reads = self.n_tokens_read = self.n_late = 0  # by the event loop
        self.n_broken = 0  # by all threads, under the lock
        self.lock = threading.Lock()


class Seen(msgspec.Struct):
    """An entry of a cache memory: when it was used, its files, and the digests of its whole blocks. If it is not
    kept, it has none."""

    used: int
    names: list[str] = msgspec.field(default_factory=list)
    digests: list[bytes] = msgspec.field(default_factory=list)


class TakenOver(Exception):
    """Another thread goes on with the work of this one."""


class Writer:
    """`bytes_max` is the limit on all files; 0: none."""

    def __init__(
        self, folder: Folder, index: Index, turns: TurnFiles, faults: Faults, counts: Counts, bytes_max: int
    ) -> None:
        self._folder = folder
        self._index = index
        self._rows = RowFiles(folder, index)
        self._turns = turns
        self._faults = faults
        self._counts = counts
        self._bytes_max = bytes_max
        self._sources: list[Source] = []
        self._seen: dict[Source, dict[int, Seen]] = {}  # entries in the cache memories, by their numbers
        self._orphans: set[str] = set()  # those of the last look
        self._t_refresh = 0.0
        self.on_listed: Callable[[], None] = lambda: None  # once the folder has been read
        self._wake = threading.Event()
        self._settled = threading.Condition()
        self._n_passes = 0
        self._is_behind = False  # entries are left that could not be written
        self._thread = threading.Thread(target=self._run_low, name="llamad-cache-disk", daemon=True)
        self._is_low = True  # the thread's priority

    def start(self) -> None:
        self._thread.start()

    def add(self, source: Source) -> None:
        """Write the entries of this cache memory from now on."""
        self._sources.append(source)  # in place, because the thread removes others at the same time

    def remove(self, source: Source) -> None:
        """Write what is left in this cache memory, which gets no more entries, and then forget it. If the disk cannot
        be written, it is forgotten at once."""
        source.is_leaving = True

    def wake(self) -> None:
        """Look for new entries now."""
        self._wake.set()

    def flush(self, seconds: float) -> bool:
        """Return when all entries of the cache memories are on disk, or False after this time. Blocks. From now on
        writing has normal priority, because somebody waits for it."""
        t_end = time.monotonic() + seconds
        if self._is_low and self._thread.is_alive():
            self._take_over()
        with self._settled:
            n_begun = self._n_passes + 1  # a pass that is running may have missed the last entries
            self.wake()
            while self._n_passes <= n_begun and (left := t_end - time.monotonic()) > 0:
                self._settled.wait(min(left, 0.1))
                self.wake()
            return self._n_passes > n_begun and not self._is_behind

    def _take_over(self) -> None:
        """Let another thread write, because nobody but root can raise the priority of one."""
        self._is_low = False
        old = self._thread
        self._thread = threading.Thread(
            target=self._run_after, args=(old,), name="llamad-cache-disk", daemon=True
        )
        self._thread.start()

    def _run_after(self, old: threading.Thread) -> None:
        while old.is_alive():
            self.wake()
            old.join(0.05)
        self._run()

    def _run_low(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        self._run()

    def _run(self) -> None:
        while threading.current_thread() is self._thread:
            try:
                self.step()
            except TakenOver:
                return
            except Exception as error:  # a bug must not end the thread
                log.exception("writing the cache on disk failed")
                self._faults.failed(error)
            with self._settled:
                self._n_passes += 1
                self._settled.notify_all()
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()

    def _go_on(self) -> None:
        """Raises TakenOver."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            raise TakenOver

    def step(self) -> None:
        """Do what is due: read the folder, write new entries, keep the limit."""
        self._is_behind = True
        if self._faults.is_paused:
            self._forget_leaving()
            return
        try:
            if time.monotonic() >= self._t_refresh:
                self.refresh()
            for source in list(self._sources):
                is_leaving = source.is_leaving
                self._save_new(source)
                if is_leaving:
                    self._forget(source)
            self._save_turns()
        except (OSError, MemoryError) as error:
            self._faults.failed(error)
            self._forget_leaving()
            return
        self._is_behind = False
        self._faults.worked()

    def _forget(self, source: Source) -> None:
        self._sources.remove(source)
        self._seen.pop(source, None)

    def _forget_leaving(self) -> None:
        """Forget the models that have left. Their prompts are lost: while they wait for a disk that cannot be written,
        they would take memory beside --cache-ram."""
        for source in list(self._sources):
            if source.is_leaving:
                self._forget(source)

    # The folder.

    def refresh(self) -> None:
        """Bring the index up to date with the folder. Raises OSError."""
        n_old = self._folder.sweep()
        if n_old:
            log.info("--cache-disk %s: removed %d files of an older version", self._folder.path, n_old)
        with self._folder.opened() as folder:
            if self._folder.is_replaced(folder):
                self._start_over()
            for name, reason in [*self._rows.refresh(folder), *self._turns.refresh(folder)]:
                self.drop(name, reason)
        self._remove_orphans()
        self._make_room(0)
        if not self._t_refresh:
            log.info(
                "--cache-disk %s: %d prompts, %d MiB",
                self._folder.path,
                self._index.n_prompts,
                self._index.n_bytes >> 20,
            )
            self.on_listed()
        self._t_refresh = time.monotonic() + REFRESH_SECONDS

    def _start_over(self) -> None:
        """Forget all files, because there is another folder now. What is in the cache memories is written there,
        too."""
        log.warning("--cache-disk %s: it is another folder than before, which is used now", self._folder.path)
        self._rows.clear()
        self._turns.clear()
        self._seen.clear()
        self._orphans.clear()

    def _remove_orphans(self) -> None:
        """Remove files that lack a block before them. Not at the first look, because another daemon may be writing."""
        orphans = self._index.orphans()
        for name in orphans & self._orphans:
            one = self._index.get(name)
            if one is not None:
                self._remove(one)
        self._orphans = orphans

    def drop(self, name: str, reason: str) -> None:
        """Remove a broken file. One that cannot be removed is ignored from now on."""
        with self._counts.lock:
            self._counts.n_broken += 1
        self._index.remove(name)
        what = "removed"
        try:
            self._folder.remove(name)
        except OSError:
            self._rows.ignore(name)
            what = "ignored"
        log.warning("the entry %s of the cache on disk is %s: %s", name, what, reason)

    @property
    def _rows_max(self) -> int:
        """Return the limit on the files of prompts."""
        return self._bytes_max - self._turns.n_bytes

    def _make_room(self, n_bytes: int, worth: float = float("inf"), kept: Sequence[str] = ()) -> bool:
        """Remove files until n_bytes more fit. Return False if what needs them is worth less."""
        if not self._bytes_max:
            return True
        n_more = self._index.n_bytes + n_bytes - self._rows_max
        if n_bytes > self._rows_max:
            return False
        if n_more <= 0:
            return True
        now, removed = time.time(), None
        for n in (n_more + self._rows_max // SPARE_PART, n_more):
            removed = self._index.to_remove(n, now, bytes_max=self._rows_max, worth=worth, kept=kept)
            if removed is not None:
                break
        for one in removed or ():
            self._remove(one)
            self._counts.n_evicted += 1
        return removed is not None

    def _remove(self, one: Stored) -> None:
        self._folder.remove(one.name)
        self._index.remove(one.name)

    # The answers.

    def _save_turns(self) -> None:
        if self._turns.is_behind:
            self._make_room(0)
            self._counts.n_bytes_written += self._turns.write()

    # The cache memories.

    def _save_new(self, source: Source) -> None:
        """Write the entries that are new, the last used first. Raises OSError, MemoryError."""
        fingerprint, layout = source.fingerprint, source.layout
        infos = {info.id: info for info in source.memory.entries()} if fingerprint and layout else {}
        seen = self._seen.setdefault(source, {})
        for id in seen.keys() - infos.keys():
            del seen[id]
        for info in sorted(infos.values(), key=lambda one: one.used, reverse=True):
            self._go_on()
            if info.id in seen:
                self._note_use(seen[info.id], info)
                continue
            assert layout is not None  # else there are no infos
            seen[info.id] = rows = Seen(info.used)
            try:
                self._save(source, layout, fingerprint, info, rows)
            except TimeoutError:
                raise  # it would take as long again
            except StateError:
                continue  # an engine has gone wrong; its next one drops the entry
            except BaseException as error:
                del seen[info.id]
                if not isinstance(error, Gone):
                    raise
        held = frozenset(digest for rows in seen.values() for digest in rows.digests)
        if held != source.held:
            source.held = held

    def _save(self, source: Source, layout: Layout, fingerprint: str, info: EntryInfo, seen: Seen) -> None:
        """Write the rows of an entry that are not there, unless they are not worth it. `seen` gets the names of all,
        and the digests of its whole blocks. Raises OSError, MemoryError, StateError, Gone."""
        group = self._group(source, fingerprint, info)
        if group is None or info.n_tokens < TOKENS_MIN:
            return
        copies = Copies(source, layout, fingerprint, info)
        if min(array("i", copies.tokens)) < 0:
            return  # it has images or sound
        chain = Chain(self._folder.salt, group, copies.tokens)
        rows = list(rows_of(chain, has_end=layout.has_end()))
        names = [row.name for row in rows]
        for row, name in zip(rows, names, strict=True):
            if name in self._index:
                continue
            self._go_on()
            piece = cut(layout, copies.of(row), row)
            about = self._describe(source, group, info, row, piece, needs_ends=layout.has_end())
            if not self._keep(about, piece, names, info.n_tokens):
                break
        seen.names, seen.digests = names, chain.digests[1:]

    def _describe(
        self,
        source: Source,
        group: Group,
        info: EntryInfo,
        row: Row,
        piece: bytes | memoryview,
        *,
        needs_ends: bool,
    ) -> Description:
        return Description(
            group=group,
            salt_id=self._folder.salt_id,
            model=source.name_of(),
            kind=row.kind,
            before=row.before,
            begin=row.begin,
            tokens=row.tokens,
            n_bytes=len(piece),
            checksum=checksum(piece),
            needs_ends=needs_ends,
            created=time.time(),
            is_named=info.session != 0,
            retention_s=info.retention_s,
            n_returns=info.n_returns,
            token_seconds=source.token_seconds(),
        )

    def _keep(self, about: Description, piece: bytes | memoryview, names: list[str], n_end: int) -> bool:
        """Write a row of a prompt of n_end tokens that has the rows `names`, if there is room. Return whether it is
        there."""
        new = stored(about, file_bytes(about), time.time())
        superseded = [] if new.is_end else self._index.superseded(about)
        if self._bytes_max and self._index.n_bytes + new.n_bytes > self._rows_max:
            while superseded:  # before the write, because the limit holds at all times
                self._remove(superseded.pop())
        if not self._make_room(new.n_bytes, _worth(new, n_end), names):
            return False
        new.n_bytes = self._folder.write(new.name, _timed(parts(about, piece), len(piece)))
        self._index.add(new)
        self._counts.n_writes += 1
        self._counts.n_bytes_written += new.n_bytes
        for one in superseded:
            self._remove(one)
        return True

    def _group(self, source: Source, fingerprint: str, info: EntryInfo) -> Group | None:
        number, base, n_base = info.adapters
        key_name = source.key_of(info.owner)
        if key_name is None or base or n_base:
            return None  # an activated adapter has computed only a part of it
        return Group(fingerprint, self._folder.owner(key_name), number)

    def _note_use(self, rows: Seen, info: EntryInfo) -> None:
        """Note that rows are used in memory, so that they stay on disk, too."""
        if info.used == rows.used:
            return
        rows.used = info.used
        used = time.time() - max(0, clock_us() - info.used) / 1e6
        for name in rows.names:
            one = self._index.get(name)
            if one is None:
                continue
            one.used = max(one.used, used)
            one.n_returns = max(one.n_returns, info.n_returns)
            if one.used > one.noted + NOTE_SECONDS:
                one.noted = one.used
                with contextlib.suppress(FileNotFoundError):
                    self._folder.touch(name)


def _worth(new: Stored, n_end: int) -> float:
    """Return the value of a new file, as one at the end of its prompt of n_end tokens."""
    n_own = new.n_tokens if new.is_end else new.n_tokens - new.about.begin
    return value_of(new, new.used, n_own, n_end=n_end)


def _timed(parts: Iterator[bytes | memoryview], n_bytes: int) -> Iterator[bytes | memoryview]:
    """Yield the parts of a file. Raises TimeoutError if the disk takes them too slowly."""
    seconds = WRITE_SECONDS + n_bytes / WRITE_BYTES_PER_SECOND
    t_end = time.monotonic() + seconds
    for part in parts:
        if time.monotonic() > t_end:
            raise TimeoutError(f"writing {n_bytes >> 20} MiB takes more than {seconds:.0f} s")
        yield part
