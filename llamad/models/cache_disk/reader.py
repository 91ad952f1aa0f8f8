"""Reads the files that a prompt needs: in a thread, verified, checked like a stranger's state, and never longer than
computing would take.

The event loop calls fetch(); everything that touches the disk runs on threads of its own, so that a disk that hangs
delays nothing else. Several threads read the files of one prompt at once, because a disk is faster then, and because
reading, verifying and copying a file takes a core about as long as the disk.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import islice

import msgspec

from llamad.models.cache_disk.faults import Faults, is_of_file, reason_of
from llamad.models.cache_disk.folder import Folder, entry_names
from llamad.models.cache_disk.index import Found, Index, Stored
from llamad.models.cache_disk.part_blobs import PartBlobs
from llamad.models.cache_disk.prefixes import TOKEN_BYTES
from llamad.models.cache_disk.read_speed import BYTES_MIN, ReadSpeed
from llamad.models.cache_disk.row_file import EntryBroken, RowFile
from llamad.models.cache_disk.state_rows import Joining, tokens_end, write_head
from llamad.models.cache_disk.writer import Counts, Writer
from llamad.protocol.blobs import Arena, Blob
from llamad.ses1 import ses1
from llamad.ses1.ses1 import Layout, StateError

log = logging.getLogger("llamad.cache")

N_THREADS = 2  # prompts at once
# More threads for the files of a prompt: some copy and verify while the others keep the disk busy.
N_HELPERS = min(7, (os.cpu_count() or 1) // 2)
N_AHEAD = N_HELPERS + 1  # blocks that are read while one is taken
# How much is read at the start to learn the speed, of what was used last, and for how long at most.
MEASURED_BYTES, MEASURED_FILES = 512 << 20, 256
MEASURED_SECONDS = 0.5


class Target(msgspec.Struct, frozen=True):
    """What a state must fit: the model's layout and sizes, and the memory that its engine maps."""

    layout: Layout
    n_vocab: int
    n_ctx: int
    arena: Arena | None = None


class Fetched(msgspec.Struct, frozen=True):
    """A checked state in SES1: its tokens and the memory, or the part of that which begins with token `n_begin`."""

    blob: Blob
    n_tokens: int
    n_begin: int = 0
    blobs: PartBlobs | None = None  # where the blob of a part comes from

    def release(self) -> None:
        """The engine has the state: the blob may be used for another part."""
        if self.blobs is not None:
            self.blobs.give(self.blob)


def _part_bytes(found: Found) -> int:
    """Return the size of the largest part of a prompt."""
    return tokens_end(found.blocks[-1].n_tokens) + max(one.about.n_bytes for one in found.blocks)


class Reader:
    def __init__(self, folder: Folder, index: Index, faults: Faults, counts: Counts, writer: Writer) -> None:
        self._folder = folder
        self._index = index
        self._faults = faults
        self._counts = counts
        self._writer = writer
        self._threads = ThreadPoolExecutor(N_THREADS, thread_name_prefix="llamad-cache-read")
        self._helpers = ThreadPoolExecutor(
            max(1, N_THREADS * N_HELPERS), thread_name_prefix="llamad-cache-help"
        )
        self._n_bytes = 0  # of the files that are being read, or wait for it
        self._n_stuck = 0  # reads that nobody waits for any more, but that have not ended
        self._suspects: set[str] = set()  # files that could not be read once
        self.speed = ReadSpeed()
        self._is_closed = False

    def can_read(self, n_bytes: int, seconds: float) -> bool:
        """Return whether so many bytes can be there within this time, as far as is known."""
        if self._is_closed or self._faults.is_paused or self._n_stuck >= N_THREADS:
            return False
        if self.speed.seconds(n_bytes) >= seconds:
            self.speed.doubt()
            return False
        return self.speed.seconds(self._n_bytes + n_bytes) < seconds

    async def fetch(self, found: Found, prompt: bytes, target: Target, seconds: float) -> Fetched | None:
        """Return the state, or None if it is gone, broken or not there within this time."""
        is_late = threading.Event()
        n_bytes = found.n_bytes
        self._n_bytes += n_bytes
        n_queued, t_begin = self._n_bytes, time.monotonic()
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, self._read, found, prompt, target, is_late
        )
        work.add_done_callback(lambda _: self._done(work, n_bytes, is_late))
        try:
            fetched = await asyncio.wait_for(asyncio.shield(work), seconds)
        except TimeoutError:
            self._counts.n_late += 1
            fetched = None
        finally:
            self.speed.took(n_queued, time.monotonic() - t_begin)
            if not work.done():
                is_late.set()
                self._n_stuck += 1
        if fetched is not None:
            self._counts.n_reads += 1
            self._counts.n_tokens_read += fetched.n_tokens
        return fetched

    async def fetch_parts(
        self,
        found: Found,
        prompt: bytes,
        target: Target,
        seconds: float,
        take: Callable[[Fetched], Awaitable[bool]],
    ) -> bool:
        """Give the state to `take` block by block, in order, while the next ones are being read. Return whether all
        were taken within this time. It ends with a block that is gone or broken, or for which `take` returns False."""
        loop, is_late = asyncio.get_running_loop(), threading.Event()
        left, ahead, n_tokens = iter(found.blocks), deque[asyncio.Future[Fetched | None]](), 0
        blobs = PartBlobs(_part_bytes(found), target.arena)
        self._n_bytes += found.n_bytes
        n_queued, t_begin = self._n_bytes, time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    for one in islice(left, N_AHEAD - len(ahead)):
                        ahead.append(
                            loop.run_in_executor(
                                self._helpers, self._read_part, one, prompt, target, blobs, is_late
                            )
                        )
                    if not ahead:
                        break
                    part = await asyncio.shield(ahead[0])
                    ahead.popleft()
                    if part is None or not await take(part):
                        return False
                    n_tokens = part.n_tokens
            self.speed.took(n_queued, time.monotonic() - t_begin)
        except TimeoutError:
            self.speed.took(n_queued, time.monotonic() - t_begin)
            self._counts.n_late += 1
            return False
        finally:
            is_late.set()
            self._n_stuck += 1
            rest = asyncio.gather(*ahead, return_exceptions=True)
            rest.add_done_callback(lambda _: self._parts_done(found.n_bytes))
            if n_tokens:
                self._counts.n_reads += 1
                self._counts.n_tokens_read += n_tokens
        loop.run_in_executor(self._helpers, self._note_use, found)  # nobody waits for it
        self._faults.worked()
        return True

    def _parts_done(self, n_bytes: int) -> None:
        self._n_bytes -= n_bytes
        self._n_stuck -= 1

    def _read_part(
        self, one: Stored, prompt: bytes, target: Target, blobs: PartBlobs, is_late: threading.Event
    ) -> Fetched | None:
        """Runs in a thread."""
        tokens = prompt[: one.about.begin * TOKEN_BYTES] + one.about.tokens
        try:
            blob = blobs.take()
            at = write_head(blob, tokens)
            blob.size = at + one.about.n_bytes
            if not self._fill(one, memoryview(blob)[at:], is_late):
                return None
            part = Fetched(blob, len(tokens) // TOKEN_BYTES, one.about.begin, blobs)
            ses1.check_segment(target.layout, blob, target.n_vocab, target.n_ctx, part.n_begin, part.n_tokens)
        except StateError as error:
            self._writer.drop(one.name, str(error))
            return None
        except (OSError, MemoryError) as error:
            self._faults.failed(error)
            return None
        return part

    def _done(self, work: asyncio.Future[Fetched | None], n_bytes: int, is_late: threading.Event) -> None:
        self._n_bytes -= n_bytes
        self._n_stuck -= is_late.is_set()
        if not work.cancelled() and work.exception() is not None:
            log.error("reading the cache on disk failed", exc_info=work.exception())

    def _read(self, found: Found, prompt: bytes, target: Target, is_late: threading.Event) -> Fetched | None:
        """Runs in a thread."""
        last = found.blocks[-1] if found.end is None else found.end
        tokens = prompt[: last.about.begin * TOKEN_BYTES] + last.about.tokens
        try:
            end = None
            if found.end is not None:
                end = Blob(found.end.about.n_bytes)
                end.size = found.end.about.n_bytes
                if not self._fill(found.end, memoryview(end), is_late):
                    return None
            joining = Joining(target.layout, tokens, end, target.arena)
            if target.layout.has_cells() and not self._add_blocks(joining, found.blocks, is_late):
                return None
            n_tokens, checked = ses1.check(target.layout, joining.result(), target.n_vocab, target.n_ctx)
        except StateError as error:
            self._writer.drop(found.blocks[-1].name, str(error))
            return None
        except (OSError, MemoryError) as error:
            self._faults.failed(error)
            return None
        self._note_use(found)
        self._faults.worked()
        return Fetched(checked, n_tokens)

    def measure(self) -> None:
        """Learn the speed of the disk from the files that were used last: a prompt is read only if that is faster than
        computing it. Blocks."""
        files = heapq.nlargest(MEASURED_FILES, self._index.all(), key=lambda one: one.used)
        blocks: list[Stored] = []
        n_bytes = 0
        for one in files:
            if n_bytes < MEASURED_BYTES:
                blocks.append(one)
                n_bytes += one.n_bytes
        if n_bytes < BYTES_MIN or self._is_closed:
            return
        t_begin, n_read = time.monotonic(), deque[int]()

        def read(one: Stored, buffer: Blob) -> bool:
            if time.monotonic() - t_begin > MEASURED_SECONDS:
                return True
            n_read.append(one.n_bytes)
            return self._read_one(one, buffer, threading.Event())

        try:
            if self._for_all(blocks, read):
                self.speed.measured(sum(n_read), time.monotonic() - t_begin)
        except (OSError, MemoryError) as error:
            self._faults.failed(error)

    def _add_blocks(self, joining: Joining, blocks: list[Stored], is_late: threading.Event) -> bool:
        """Add the pieces of all blocks. Return False if one is missing or broken. Raises OSError, MemoryError."""
        return self._for_all(blocks, lambda one, buffer: self._add(joining, one, buffer, is_late))

    def _for_all(self, blocks: list[Stored], do: Callable[[Stored, Blob], bool]) -> bool:
        """Do this with all blocks, in several threads, each of which has a buffer. Return False if it fails for one.
        Raises OSError, MemoryError."""
        left, is_over = iter(blocks), threading.Event()

        def work() -> None:
            buffer = Blob(max(one.about.n_bytes for one in blocks))
            for one in left:  # a list's iterator, which threads may share
                if is_over.is_set() or not do(one, buffer):
                    is_over.set()
                    return

        helpers = [self._helpers.submit(work) for _ in range(min(N_HELPERS, len(blocks) - 1))]
        try:
            work()
        finally:
            wait(helpers)
        for one in helpers:
            one.result()
        return not is_over.is_set()

    def _add(self, joining: Joining, one: Stored, buffer: Blob, is_late: threading.Event) -> bool:
        """Read a block and add its piece. Return False if it is gone or broken, or if nobody waits any more. Raises
        OSError, MemoryError."""
        if not self._read_one(one, buffer, is_late):
            return False
        with memoryview(buffer) as view:
            try:
                joining.add(view, one.about.begin)
            except StateError as error:
                self._writer.drop(one.name, str(error))
                return False
        return True

    def _read_one(self, one: Stored, buffer: Blob, is_late: threading.Event) -> bool:
        """The same without adding it."""
        buffer.size = one.about.n_bytes
        with memoryview(buffer) as view:
            return self._fill(one, view, is_late)

    def _fill(self, one: Stored, view: memoryview, is_late: threading.Event) -> bool:
        """Read what the file has of the state. Return False if it is gone or broken, or if nobody waits any more.
        Another daemon may have written it again since it was listed: its name says what it is. Raises OSError, but a
        file that cannot be read again is removed."""
        if is_late.is_set():
            return False
        self.speed.begin()
        try:
            with self._folder.opened() as folder:
                try:
                    return self._fill_from(folder, one, view, is_late)
                except OSError as error:
                    if not self._is_bad(folder, one, error):
                        raise
                    self._writer.drop(one.name, reason_of(error))
        except FileNotFoundError:
            self._index.remove(one.name)
        except EntryBroken as error:
            self._writer.drop(one.name, str(error))
        finally:
            self.speed.end()
        return False

    def _fill_from(self, folder: int, one: Stored, view: memoryview, is_late: threading.Event) -> bool:
        with RowFile(folder, one.name) as file:
            if file.description.n_bytes != len(view):
                self._index.remove(one.name)  # another daemon has replaced it; the next look finds it
                return False
            is_read = file.read_into(view, is_late.is_set, self.speed.count)
        self._suspects.discard(one.name)
        return is_read

    def _is_bad(self, folder: int, one: Stored, error: OSError) -> bool:
        """Return whether a file cannot be read for the second time, because the disk has a bad sector, say. The first
        time, it may be the disk. Raises OSError if the folder cannot be read."""
        if isinstance(error, FileNotFoundError) or not is_of_file(error):
            return False
        if one.name not in self._suspects:
            self._suspects.add(one.name)
            return False
        self._suspects.discard(one.name)
        entry_names(folder)
        return True

    def _note_use(self, found: Found) -> None:
        """Note the use of the files."""
        now = time.time()
        for one in found.files:
            one.used = one.noted = now
            one.n_returns += 1
            try:
                self._folder.touch(one.name)
            except OSError:
                return  # they are gone, or there is a fault that the next read will notice

    def close(self) -> None:
        """Start no more reads."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
