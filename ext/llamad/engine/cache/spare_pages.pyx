# Owns: pages for the next entry of the prompt cache, which the thread that tends its memory prepares, because new pages are
# slow to write to. It can also copy a blob into them: half a gigabyte would keep the streams waiting. The engine thread
# asks for them between two steps, and is woken when they are there.
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memcpy

from llamad.base.system cimport fetch_add_int, futex_wake_all, load_int, store_int
from llamad.engine.cache.cache_types cimport SPARE_NONE, SPARE_READY, SPARE_WANTED, Cache
from llamad.protocol.blobs cimport blob_leave, blob_use, llamad_blob
from llamad.protocol.cache_memory cimport memory_drop, memory_populate


cdef void _forget(Cache *cache) noexcept nogil:
    cache.spare_state = SPARE_NONE
    cache.n_spare = cache.filled = 0


cdef void spare_drop(Cache *cache) noexcept nogil:
    """Give the pages back, unless the other thread still prepares them."""
    if load_int(&cache.spare_state) == SPARE_READY:
        memory_drop(cache.memory, cache.spare)
        _forget(cache)


cdef int _fits(const Cache *cache, size_t n) noexcept nogil:
    return n <= cache.memory.rows[cache.spare].span and cache.n_spare <= 2 * n


cdef int32_t spare_take(Cache *cache, size_t n) noexcept nogil:
    """Return the row with the pages if they are ready and fit n bytes, or -1; then they are given back."""
    if load_int(&cache.spare_state) != SPARE_READY or not _fits(cache, n):
        spare_drop(cache)
        return -1
    _forget(cache)
    return cache.spare


cdef int spare_is_coming(Cache *cache, size_t n) noexcept nogil:
    """Return whether there are pages for n bytes, or others are being prepared, for which one has to wait."""
    if load_int(&cache.spare_state) == SPARE_READY and not _fits(cache, n):
        spare_drop(cache)
    return load_int(&cache.spare_state) != SPARE_NONE


cdef void _ask(Cache *cache) noexcept nogil:
    store_int(&cache.spare_state, SPARE_WANTED)
    fetch_add_int(&cache.memory.news, 1)
    futex_wake_all(&cache.memory.news)


cdef void spare_ask(Cache *cache, int32_t row, size_t n) noexcept nogil:
    """Let the other thread prepare n bytes of this row, which has no pages yet."""
    cache.spare = row
    cache.n_spare = n
    _ask(cache)


cdef int spare_ask_for_blob(Cache *cache, uint64_t blob, size_t n) noexcept nogil:
    """Let the other thread copy the blob's first n bytes into the pages, if they are ready. Return whether it does: not if
    it has tried."""
    if load_int(&cache.spare_state) != SPARE_READY or cache.filled == blob:
        return 0
    cache.filled = blob
    cache.n_filled = n
    _ask(cache)
    return 1


cdef int spare_has(const Cache *cache, uint64_t blob, size_t n) noexcept nogil:
    """Return whether the pages are ready and have the blob's first n bytes."""
    return load_int(&cache.spare_state) == SPARE_READY and cache.filled == blob and cache.n_filled == n


cdef void spare_prepare(Cache *cache) noexcept nogil:
    """Prepare what was asked for. For the thread that tends the memory."""
    cdef llamad_blob *blob = blob_use(cache.filled) if cache.filled else NULL
    if memory_populate(cache.memory, cache.spare, cache.n_spare) != 0 or blob == NULL:
        cache.n_filled = 0
    else:
        memcpy(cache.memory.places[cache.spare].data, blob.data, min(cache.n_filled, blob.capacity))
    if blob != NULL:
        blob_leave(blob)
    store_int(&cache.spare_state, SPARE_READY)
