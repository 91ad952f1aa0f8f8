# distutils: sources = ext/llamad/protocol/cache_table.c ext/llamad/protocol/cache_pages.c
# Owns: a model's prompt cache in shared memory, as Python sees it. The front makes it, keeps it while engines come and go,
# and may read what is READY at any time and from any thread; it drops entries only while no engine runs. The engine maps
# the same memory, and its thread writes to it (engine/cache/host_cache.pyx).
import mmap
import os
import sys
from typing import NamedTuple

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from "llamad/protocol/cache_memory.h" nogil:
    int llamad_cache_create() noexcept
    int llamad_cache_open(llamad_cache *cache, int fd) noexcept
    void llamad_cache_close(llamad_cache *cache) noexcept
    uint64_t llamad_cache_checksum(const uint8_t *data, size_t n) noexcept
    uint64_t llamad_cache_prefix(uint64_t hash, int32_t token) noexcept
    int llamad_cache_row_is_sane(const llamad_cache *cache, int32_t row, uint32_t state,
                                 llamad_cache_row *copy) noexcept
    int32_t llamad_cache_pin(llamad_cache *cache, uint64_t id) noexcept
    void llamad_cache_unpin(llamad_cache *cache, int32_t row) noexcept
    uint64_t llamad_cache_shrink(llamad_cache *cache, uint64_t n_bytes) noexcept
    uint64_t llamad_cache_resident(const llamad_cache *cache) noexcept
    int32_t llamad_cache_adopt(llamad_cache *cache, const uint8_t *fingerprint) noexcept
    int32_t llamad_cache_take(llamad_cache *cache, size_t n, int32_t old) noexcept
    int32_t llamad_cache_reserve(llamad_cache *cache, size_t n, int32_t old) noexcept
    void llamad_cache_renew(llamad_cache *cache, int32_t row) noexcept
    int llamad_cache_populate(llamad_cache *cache, int32_t row, size_t n) noexcept
    void llamad_cache_publish(llamad_cache *cache, int32_t row) noexcept
    void llamad_cache_drop(llamad_cache *cache, int32_t row) noexcept
    void llamad_cache_sweep(llamad_cache *cache) noexcept
    void llamad_cache_use(llamad_cache *cache, int32_t row) noexcept
    uint32_t llamad_cache_risk(llamad_cache *cache, int32_t row) noexcept
    void llamad_cache_survive(llamad_cache *cache, int32_t row, uint32_t state) noexcept
    int llamad_cache_sign(llamad_cache *cache) noexcept


class Segment(NamedTuple):
    """An entry of a chain: SES1 with all tokens so far, and the cells from token `begin` on, where the one before it ends.
    Where states have an end, the last entry may be only that; then the cells of its last token are in the entry before
    it, which may have more tokens."""

    n_tokens: int
    checksum: int
    data: memoryview
    is_end: bool = False
    begin: int = 0


class EntryInfo(NamedTuple):
    """A prompt that is complete: its last entry, of `n_bytes`, and those before it. `adapters` are the set, the base set
    and the length of the base, as in an Action; `used` is a time of the system's monotonic clock in microseconds."""

    id: int
    n_tokens: int
    n_bytes: int
    owner: int
    adapters: tuple[int, int, int]
    session: int
    used: int
    checksum: int
    retention_s: int = 0
    n_returns: int = 0


cdef class CacheMemory:
    """Without a descriptor, a new memory without entries; with one, a mapping of that memory, which then owns the
    descriptor. Raises OSError."""

    def __cinit__(self, fd: int = -1) -> None:
        self.fd = llamad_cache_create() if fd < 0 else fd
        self._pins = {}
        if self.fd < 0:
            raise OSError("no shared memory: memfd_create failed; raise `ulimit -n` or free some memory")
        if llamad_cache_open(&self.cache, self.fd) < 0:
            raise OSError("the shared memory of the prompt cache cannot be mapped")

    def __dealloc__(self) -> None:
        llamad_cache_close(&self.cache)
        if self.fd >= 0:
            os.close(self.fd)

    @property
    def n_bytes(self) -> int:
        """The bytes that are in memory now, whether or not an entry has them."""
        return llamad_cache_resident(&self.cache)

    @property
    def fingerprint(self) -> bytes:
        """What the entries depend on, as the last engine computed it: its model and its settings. Zeros before that."""
        return (<char *>self.cache.head.fingerprint)[:LLAMAD_CACHE_FINGERPRINT]

    def entries(self) -> list[EntryInfo]:
        """Return the prompts that are READY, but not those that another one begins with and shares its entries with, unless
        they have ends of their own."""
        cdef llamad_cache_row row
        cdef int32_t i
        entries = []
        shared = set()
        for i in range(LLAMAD_CACHE_ROWS):
            if llamad_cache_row_is_sane(&self.cache, i, LLAMAD_CACHE_READY, &row) and (
                    row.kind == LLAMAD_CACHE_STATE or row.kind == LLAMAD_CACHE_END):
                if row.kind == LLAMAD_CACHE_STATE:
                    shared.add(row.before)
                entries.append(EntryInfo(row.id, row.n_tokens, row.n_bytes, row.owner,
                                         (row.adapters_set, row.adapters_base, row.n_base), row.session, row.used,
                                         row.checksum, row.retention_s, row.n_returns))
        return [entry for entry in entries if entry.id not in shared]

    def pin(self, id: int, begin: int = 0, end: int = sys.maxsize) -> list[Segment] | None:
        """Return the entries of a prompt that have cells of its tokens from `begin` to `end`, the first one first, and the
        last one in any case; None if an entry of the prompt is gone. The bytes stay until unpin(). An engine that goes
        wrong may change them: whoever relies on them copies them, and then compares the checksums."""
        cdef llamad_cache_row row
        cdef int32_t i
        if id in self._pins:
            raise ValueError(f"entry {id} is pinned already")
        pins: list[int] = []
        rows = []
        next_id, n_end, is_behind_end = id, 0, False
        while next_id:
            i = llamad_cache_pin(&self.cache, next_id)
            if i < 0:
                break
            pins.append(i)
            if not llamad_cache_row_is_sane(&self.cache, i, LLAMAD_CACHE_READY, &row) or row.id != <uint64_t>next_id:
                break
            is_end = row.kind == LLAMAD_CACHE_END
            if row.kind == LLAMAD_CACHE_CHECKPOINT or (row.kind == LLAMAD_CACHE_PART if not rows else is_end):
                break
            if rows and (row.n_tokens < n_end if is_behind_end else row.n_tokens >= n_end):
                break
            if is_end and not row.before:
                break
            rows.append((row.n_tokens, row.checksum, is_end, row.n_bytes, row.at))
            next_id, n_end, is_behind_end = row.before, row.n_tokens, is_end
        self._pins[id] = pins
        segments = None if next_id else self._mapped(rows[::-1], begin, end)
        if segments is None:
            self.unpin(id)
        return segments

    def _mapped(self, rows: list, begin: int, end: int) -> list[Segment] | None:
        """Map those of a prompt's rows that have cells between these tokens, and the last one; None if that failed."""
        segments: list[Segment] = []
        first = 0  # token of the row
        for row in rows:
            n_tokens, checksum, is_end, n_bytes, at = row
            if row is rows[len(rows) - 1] or (first < end and begin < n_tokens):  # compiled without negative indexes
                try:
                    pages = mmap.mmap(self.fd, n_bytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=at)
                except OSError:
                    return None
                segments.append(Segment(n_tokens, checksum, memoryview(pages), is_end, min(first, n_tokens)))
            first = n_tokens
        return segments

    def unpin(self, id: int) -> None:
        for i in self._pins.pop(id):
            llamad_cache_unpin(&self.cache, i)

    def shrink(self, n_bytes: int) -> int:
        """Drop the longest unused entries until they have at most n_bytes, except those that are pinned. Return how many
        they have. Only while no engine runs. Another thread frees the memory."""
        return llamad_cache_shrink(&self.cache, n_bytes)


def checksum(const uint8_t[::1] data) -> int:
    """Return the checksum of an entry with these bytes."""
    cdef size_t n = <size_t>data.shape[0]
    cdef const uint8_t *first = &data[0] if n else NULL
    cdef uint64_t result
    with nogil:
        result = llamad_cache_checksum(first, n)
    return result


# --- for compiled code ------------------------------------------------------------------------------------------

cdef int memory_open(llamad_cache *cache, int fd) noexcept nogil:
    return llamad_cache_open(cache, fd)


cdef void memory_close(llamad_cache *cache) noexcept nogil:
    llamad_cache_close(cache)


cdef uint64_t memory_checksum(const uint8_t *data, size_t n) noexcept nogil:
    return llamad_cache_checksum(data, n)


cdef uint64_t memory_prefix(uint64_t hash, int32_t token) noexcept nogil:
    return llamad_cache_prefix(hash, token)


cdef int32_t memory_adopt(llamad_cache *cache, const uint8_t *fingerprint) noexcept nogil:
    return llamad_cache_adopt(cache, fingerprint)


cdef int32_t memory_take(llamad_cache *cache, size_t n, int32_t old) noexcept nogil:
    return llamad_cache_take(cache, n, old)


cdef int32_t memory_reserve(llamad_cache *cache, size_t n, int32_t old) noexcept nogil:
    return llamad_cache_reserve(cache, n, old)


cdef void memory_renew(llamad_cache *cache, int32_t row) noexcept nogil:
    llamad_cache_renew(cache, row)


cdef int memory_populate(llamad_cache *cache, int32_t row, size_t n) noexcept nogil:
    return llamad_cache_populate(cache, row, n)


cdef void memory_publish(llamad_cache *cache, int32_t row) noexcept nogil:
    llamad_cache_publish(cache, row)


cdef void memory_drop(llamad_cache *cache, int32_t row) noexcept nogil:
    llamad_cache_drop(cache, row)


cdef void memory_sweep(llamad_cache *cache) noexcept nogil:
    llamad_cache_sweep(cache)


cdef void memory_use(llamad_cache *cache, int32_t row) noexcept nogil:
    llamad_cache_use(cache, row)


cdef uint32_t memory_risk(llamad_cache *cache, int32_t row) noexcept nogil:
    return llamad_cache_risk(cache, row)


cdef void memory_survive(llamad_cache *cache, int32_t row, uint32_t state) noexcept nogil:
    llamad_cache_survive(cache, row, state)


cdef int memory_sign(llamad_cache *cache) noexcept nogil:
    return llamad_cache_sign(cache)
