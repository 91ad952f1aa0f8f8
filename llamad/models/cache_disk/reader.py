"""Reads an entry for a prompt: in a thread, verified, checked like a stranger's state, and never longer than computing
would take.

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

from llamad.models.cache_disk.entry_file import EntryBroken, EntryFile
from llamad.models.cache_disk.faults import Faults
from llamad.models.cache_disk.folder import Folder
from llamad.models.cache_disk.index import Found, Index
from llamad.models.cache_disk.prefixes import n_common
from llamad.models.cache_disk.writer import Counts, Writer
from llamad.protocol.blobs import Arena, Blob
from llamad.ses1 import ses1
from llamad.ses1.ses1 import Layout, StateError

log = logging.getLogger("llamad.cache")

N_THREADS = 2
# Bytes per second, until something was read. An entry of which the prompt has only the beginning is not worth reading
# if it is large.
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

    def can_read(self, found: Found, seconds: float) -> bool:
        """Return whether the entry can be there within this time, as far as is known."""
        if self._is_closed or self._faults.is_paused or self._n_stuck >= N_THREADS:
            return False
        return (self._n_bytes + found.entry.n_bytes) / self._speed < seconds

    async def fetch(self, found: Found, prompt: bytes, target: Target, seconds: float) -> Fetched | None:
        """Return the entry's state, or None if it is gone, broken or not there within this time."""
        is_late = threading.Event()
        self._n_bytes += found.entry.n_bytes
        reading = asyncio.get_running_loop().run_in_executor(
            self._threads, self._read, found, prompt, target, is_late
        )
        reading.add_done_callback(lambda _: self._done(reading, found, is_late))
        try:
            fetched = await asyncio.wait_for(asyncio.shield(reading), seconds)
        except TimeoutError:
            self._counts.n_late += 1
            return None
        finally:
            if not reading.done():
                is_late.set()
                self._n_stuck += 1
        if fetched is not None:
            self._counts.n_reads += 1
            self._counts.n_tokens_read += fetched.n_tokens
        return fetched

    def _done(self, reading: asyncio.Future[Fetched | None], found: Found, is_late: threading.Event) -> None:
        self._n_bytes -= found.entry.n_bytes
        self._n_stuck -= is_late.is_set()
        if not reading.cancelled() and reading.exception() is not None:
            log.error("reading the cache on disk failed", exc_info=reading.exception())

    def _read(self, found: Found, prompt: bytes, target: Target, is_late: threading.Event) -> Fetched | None:
        """Runs in a thread."""
        name, t_begin = found.entry.name, time.monotonic()
        try:
            with self._folder.opened() as folder, EntryFile(folder, name) as file:
                if file.description.group != found.entry.group:
                    raise EntryBroken("it belongs to something else")
                blob = _load(file, found, prompt, target, is_late)
            if blob is None:
                return None
            n_tokens, checked = ses1.check(target.layout, blob, target.n_vocab, target.n_ctx)
            self._learn(found.entry.n_bytes, time.monotonic() - t_begin)
            self._folder.touch(name)
        except FileNotFoundError:
            self._index.remove(name)
            return None
        except (EntryBroken, StateError) as error:
            self._writer.drop(name, str(error))
            return None
        except (OSError, MemoryError) as error:
            self._faults.failed(error)
            return None
        self._index.use(name, time.time())
        self._faults.worked()
        return Fetched(checked, n_tokens)

    def _learn(self, n_bytes: int, seconds: float) -> None:
        if n_bytes >= SPEED_BYTES_MIN:
            self._speed += SPEED_LEARN_RATE * (n_bytes / max(seconds, 1e-6) - self._speed)

    def close(self) -> None:
        """Start no more reads."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def _load(
    file: EntryFile, found: Found, prompt: bytes, target: Target, is_late: threading.Event
) -> Blob | None:
    """Return the entry's SES1, or None if the prompt has too few of its tokens or nobody waits any more."""
    if n_common(file.read_tokens(), prompt) < found.n_tokens:
        return None
    blob = Blob(file.description.n_bytes, target.arena)
    blob.size = file.description.n_bytes
    with memoryview(blob) as view:
        return blob if file.read_into(view, is_late.is_set) else None
