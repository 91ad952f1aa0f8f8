# Owns: room in the prompt cache: what is dropped until something fits into its limit, and the pages that it then gets.
# Runs on the engine thread, between two steps. eviction.pyx says which entry is worth least.
from libc.stdint cimport int32_t, int64_t

from llamad.base.system cimport now_us
from llamad.engine.cache.cache_entries cimport entries_drop, entries_drop_rest, entries_remove
from llamad.engine.cache.cache_types cimport Cache, cache_held, cache_rounded
from llamad.engine.cache.chains cimport chain_before
from llamad.engine.cache.eviction cimport cache_is_kept, cache_least_valuable
from llamad.engine.cache.spare_pages cimport spare_drop_one, spare_kept_bytes, spare_take
from llamad.engine.cache.staging cimport staging_capacity, staging_free
from llamad.engine.costs.scheduler cimport CACHE_ENTRIES_MAX
from llamad.protocol.cache_memory cimport memory_drop, memory_take


cdef size_t _kept_bytes(Cache *cache) noexcept nogil:
    """Return the size of what is not dropped for anything: checkpoints, a buffer in use, pages that somebody waits for,
    and the entries that are kept, with those before them, each once."""
    cdef size_t n = cache.checkpoints.n_bytes + spare_kept_bytes(cache)
    cdef int64_t i, k
    if cache.staging.n_state:
        n += cache.staging.capacity
    for i in range(cache.n_entries):
        cache.entries[i].is_counted = 0
    for i in range(cache.n_entries):
        k = i if cache_is_kept(cache, i) else -1
        while k >= 0 and not cache.entries[k].is_counted:
            cache.entries[k].is_counted = 1
            n += cache.entries[k].capacity
            k = chain_before(cache, k)
    return n


cdef int cache_is_full(const Cache *cache, size_t n) noexcept nogil:
    """Return whether an entry of n bytes does not fit beside the others."""
    return cache.n_entries == CACHE_ENTRIES_MAX or (
        cache_held(cache) + cache.checkpoints.n_bytes + n > cache.bytes_max)


cdef int cache_make_room(Cache *cache, size_t n, int32_t *row) noexcept nogil:
    """Evict the least valuable entries until n bytes fit into the limit, and return 1. If they cannot fit, return 0; then
    nothing was evicted for bytes that are kept. A buffer for states that has none goes last. If row is -1, it becomes that
    of an evicted entry with about as many pages, if there is one."""
    cdef size_t capacity
    cdef int32_t before
    cdef int64_t i
    if not cache_is_full(cache, n):
        return 1
    if n + _kept_bytes(cache) > cache.bytes_max:
        return 0
    while cache_is_full(cache, n):
        if spare_drop_one(cache):
            continue
        i = cache_least_valuable(cache)
        if i < 0 and cache.staging.data != NULL and cache.staging.n_state == 0:
            staging_free(&cache.staging)
            continue
        if i < 0:
            return 0
        cache.n_dropped += 1
        capacity = cache.entries[i].capacity
        if row[0] < 0 and n <= capacity <= n + n // 4:
            before = cache.entries[i].before
            row[0] = entries_remove(cache, i)
            entries_drop_rest(cache, before)
            n = capacity
        else:
            entries_drop(cache, i)
    return 1


cdef int cache_has_staging_room(Cache *cache, size_t n, size_t n_saved) noexcept nogil:
    """Make room within the limit for a buffer of n bytes, out of which n_saved bytes are saved beside it. Return whether
    there is room; if it cannot be made for all that, nothing was evicted."""
    cdef int32_t row = 0  # of no evicted entry
    cdef size_t n_own = cache.staging.capacity if cache.staging.n_state else 0
    if staging_capacity(n) + n_saved + _kept_bytes(cache) - n_own > cache.bytes_max:
        return 0
    if n <= cache.staging.capacity:
        return 1
    staging_free(&cache.staging)
    return cache_make_room(cache, staging_capacity(n), &row)


cdef int32_t cache_take_pages(Cache *cache, size_t n, int32_t row) noexcept nogil:
    """Return a row with pages for n bytes within the limit, or -1. `row` is one that the caller has, or -1: its pages, or
    spare ones, or those of an evicted entry are used again if they fit, because new pages are slower to write to."""
    cdef int64_t t_start = now_us()
    cache.pages_us = 0
    if row < 0:
        row = spare_take(cache, n)
    if not cache_make_room(cache, max(cache_rounded(n), cache.memory.rows[row].capacity if row >= 0 else 0), &row):
        if row >= 0:
            memory_drop(cache.memory, row)
        return -1
    row = memory_take(cache.memory, n, row)
    cache.pages_us = now_us() - t_start
    return row
