"""Reads the files that a prompt needs: in a thread, verified, checked like a stranger's state, and never longer than
computing would take.

The event loop calls fetch(); everything that touches the disk runs on two threads of its own, so that a disk that hangs
delays nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from llamad.models.cache_disk.faults import Faults
from llamad.models.cache_disk.folder import Folder
from llamad.models.cache_disk.index import Found, Index, Stored
from llamad.models.cache_disk.prefixes import TOKEN_BYTES
from llamad.models.cache_disk.row_file import EntryBroken, RowFile
from llamad.models.cache_disk.state_rows import join
from llamad.models.cache_disk.writer import Counts, Writer
from llamad.protocol.blobs import Arena, Blob
from llamad.ses1 import ses1
from llamad.ses1.ses1 import Layout, StateError

log = logging.getLogger("llamad.cache")

N_THREADS = 2
# Bytes per second, until something was read.
SPEED_DEFAULT = 500e6
SPEED_LEARN_RATE = 0.3
SPEED_BYTES_MIN = 8 * 1024 * 1024  # smaller reads say little about the speed of larger ones


class Target(msgspec.Struct, frozen=True):
    """What a state must fit: the model's layout and sizes, and the memory that its engine maps."""

    layout: Layout
    n_vocab: int
    n_ctx: int
    arena: Arena | None = None


class Fetched(msgspec.Struct, frozen=True):
    """A checked state in SES1: its tokens and the memory."""

    blob: Blob
    n_tokens: int


class Reader:
    def __init__(self, folder: Folder, index: Index, faults: Faults, counts: Counts, writer: Writer) -> None:
        self._folder = folder
        self._index = index
        self._faults = faults
        self._counts = counts
        self._writer = writer
        self._threads = ThreadPoolExecutor(N_THREADS, thread_name_prefix="llamad-cache-read")
        self._n_bytes = 0  # of the files that are being read, or wait for it
        self._n_stuck = 0  # reads that nobody waits for any more, but that have not ended
        self._speed = SPEED_DEFAULT
        self._is_closed = False

    def can_read(self, n_bytes: int, seconds: float) -> bool:
        """Return whether so many bytes can be there within this time, as far as is known."""
        if self._is_closed or self._faults.is_paused or self._n_stuck >= N_THREADS:
            return False
        return (self._n_bytes + n_bytes) / self._speed < seconds

    async def fetch(self, found: Found, prompt: bytes, target: Target, seconds: float) -> Fetched | None:
        """Return the state, or None if it is gone, broken or not there within this time."""
        is_late = threading.Event()
        n_bytes = found.n_bytes
        self._n_bytes += n_bytes
        work = asyncio.get_running_loop().run_in_executor(
            self._threads, self._read, found, prompt, target, is_late
        )
        work.add_done_callback(lambda _: self._done(work, n_bytes, is_late))
        try:
            fetched = await asyncio.wait_for(asyncio.shield(work), seconds)
        except TimeoutError:
            self._counts.n_late += 1
            return None
        finally:
            if not work.done():
                is_late.set()
                self._n_stuck += 1
        if fetched is not None:
            self._counts.n_reads += 1
            self._counts.n_tokens_read += fetched.n_tokens
        return fetched

    def _done(self, work: asyncio.Future[Fetched | None], n_bytes: int, is_late: threading.Event) -> None:
        self._n_bytes -= n_bytes
        self._n_stuck -= is_late.is_set()
        if not work.cancelled() and work.exception() is not None:
            log.error("reading the cache on disk failed", exc_info=work.exception())

    def _read(self, found: Found, prompt: bytes, target: Target, is_late: threading.Event) -> Fetched | None:
        """Runs in a thread."""
        t_begin, last = time.monotonic(), found.blocks[-1]
        try:
            pieces = [self._piece(one, is_late) for one in found.files]
            if any(piece is None for piece in pieces):
                return None
            end = pieces.pop() if found.end is not None else None
            about = last.about if found.end is None else found.end.about
            tokens = prompt[: about.begin * TOKEN_BYTES] + about.tokens
            blob = join(target.layout, tokens, [one for one in pieces if one is not None], end, target.arena)
            del pieces
            n_tokens, checked = ses1.check(target.layout, blob, target.n_vocab, target.n_ctx)
        except StateError as error:
            self._writer.drop(last.name, str(error))
            return None
        except (OSError, MemoryError) as error:
            self._faults.failed(error)
            return None
        self._learn(found.n_bytes, time.monotonic() - t_begin)
        self._note_use(found)
        self._faults.worked()
        return Fetched(checked, n_tokens)

    def _piece(self, one: Stored, is_late: threading.Event) -> bytearray | None:
        """Return what the file has of the state, or None if it is gone or broken, or nobody waits any more. Raises
        OSError."""
        if is_late.is_set():
            return None
        try:
            with self._folder.opened() as folder, RowFile(folder, one.name) as file:
                if file.description != one.about:
                    raise EntryBroken("it has changed since it was listed")
                piece = bytearray(one.about.n_bytes)
                return piece if file.read_into(memoryview(piece), is_late.is_set) else None
        except FileNotFoundError:
            self._index.remove(one.name)
        except EntryBroken as error:
            self._writer.drop(one.name, str(error))
        return None

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

    def _learn(self, n_bytes: int, seconds: float) -> None:
        if n_bytes >= SPEED_BYTES_MIN:
            self._speed += SPEED_LEARN_RATE * (n_bytes / max(seconds, 1e-6) - self._speed)

    def close(self) -> None:
        """Start no more reads."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
