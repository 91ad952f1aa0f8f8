# Owns: pages for entries of the prompt cache that are made later. Threads beside the engine prepare them, because new pages
# are slow to write to. It can also copy a blob into them: half a gigabyte would keep the streams waiting. The
# engine thread asks for them between two steps, and is woken when they are there. They count in the cache's limit.
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memcpy

from llamad.base.system cimport fetch_add_int, futex_wake_all, load_int, store_int, swap_int
from llamad.engine.cache.cache_types cimport (
    SPARE_NONE, SPARE_BUSY, SPARE_READY, SPARE_WANTED, SPARES_MAX, Cache, Spare, cache_rounded,
)
from llamad.protocol.blobs cimport blob_leave, blob_use, llamad_blob
from llamad.protocol.cache_memory cimport memory_drop, memory_populate, memory_reserve


cdef int32_t _give(Cache *cache, Spare *spare) noexcept nogil:
    """Return the row of these pages, which are ready. The caller owns it then."""
    cache.n_spare -= spare.capacity
    store_int(&spare.state, SPARE_NONE)
    return spare.row


cdef void _unlock(Cache *cache, const Spare *spare) noexcept nogil:
    if spare.is_locked:
        cache.table.unlock_pages(cache.ctx, cache.memory.places[spare.row].data)


cdef void _drop(Cache *cache, Spare *spare) noexcept nogil:
    """Give pages back that are ready."""
    _unlock(cache, spare)
    memory_drop(cache.memory, _give(cache, spare))


cdef int _can_drop(const Spare *spare) noexcept nogil:
    """Return whether the pages are ready, and nobody waits for what is in them."""
    return load_int(&spare.state) == SPARE_READY and (spare.blob == 0 or spare.is_left)


cdef int spare_drop_one(Cache *cache) noexcept nogil:
    """Give pages back that are ready, unless a request waits for the blob's bytes that they have. Return whether there
    were any."""
    cdef Spare *spare
    cdef int32_t i
    for i in range(SPARES_MAX):
        spare = &cache.spares[i]
        if _can_drop(spare):
            _drop(cache, spare)
            return 1
    return 0


cdef int spare_drop_copy(Cache *cache) noexcept nogil:
    """Give back the pages that were asked for last, of those that are ready, also if a request waits for the blob's bytes
    that they have. Return whether there were any."""
    cdef Spare *spare
    cdef Spare *chosen = NULL
    cdef int32_t i
    for i in range(SPARES_MAX):
        spare = &cache.spares[i]
        if load_int(&spare.state) == SPARE_READY and (chosen == NULL or spare.number > chosen.number):
            chosen = spare
    if chosen != NULL:
        _drop(cache, chosen)
    return chosen != NULL


cdef int _fits(const Spare *spare, size_t n) noexcept nogil:
    """Return whether these are pages for n bytes, of which they would waste less than half."""
    return load_int(&spare.state) != SPARE_NONE and spare.blob == 0 and n <= spare.n < 2 * n


cdef int32_t spare_count(const Cache *cache, size_t n) noexcept nogil:
    """Return for how many entries of n bytes there are pages, or will be."""
    cdef int32_t i, n_spares = 0
    for i in range(SPARES_MAX):
        n_spares += _fits(&cache.spares[i], n)
    return n_spares


cdef int spare_is_ready(const Cache *cache, size_t n) noexcept nogil:
    cdef int32_t i
    for i in range(SPARES_MAX):
        if _fits(&cache.spares[i], n) and load_int(&cache.spares[i].state) == SPARE_READY:
            return 1
    return 0


cdef int spare_is_awaited(const Cache *cache) noexcept nogil:
    """Return whether the other thread still prepares pages."""
    cdef int32_t i
    for i in range(SPARES_MAX):
        if load_int(&cache.spares[i].state) in (SPARE_WANTED, SPARE_BUSY):
            return 1
    return 0


cdef int32_t spare_take(Cache *cache, size_t n) noexcept nogil:
    """Return a row with pages for n bytes, if there are any that are ready; otherwise -1."""
    cdef Spare *spare
    cdef int32_t i
    for i in range(SPARES_MAX):
        spare = &cache.spares[i]
        if _fits(spare, n) and load_int(&spare.state) == SPARE_READY:
            return _give(cache, spare)
    return -1


cdef const Spare *spare_of_blob(const Cache *cache, uint64_t blob) noexcept nogil:
    """Return the pages that have the blob's bytes, or will have them; NULL if there are none."""
    cdef int32_t i
    for i in range(SPARES_MAX):
        if load_int(&cache.spares[i].state) != SPARE_NONE and cache.spares[i].blob == blob and not cache.spares[i].is_left:
            return &cache.spares[i]
    return NULL


cdef int32_t spare_take_blob(Cache *cache, uint64_t blob, size_t n, int *is_locked) noexcept nogil:
    """Return the row with the blob's first n bytes, if it is ready; otherwise -1. Its pages may be locked."""
    cdef Spare *spare = <Spare *>spare_of_blob(cache, blob)
    is_locked[0] = 0
    if spare == NULL or load_int(&spare.state) != SPARE_READY:
        return -1
    if spare.n_copied != n:
        _drop(cache, spare)
        return -1
    is_locked[0] = spare.is_locked
    return _give(cache, spare)


cdef void spare_forget(Cache *cache, uint64_t blob) noexcept nogil:
    """Nobody needs the blob's bytes any more. It may get others, but only when these were inserted, so that no thread is
    copying them."""
    cdef Spare *spare = <Spare *>spare_of_blob(cache, blob)
    if spare == NULL:
        return
    if load_int(&spare.state) == SPARE_READY:
        _drop(cache, spare)
    else:
        spare.is_left = 1


cdef int spare_has_place(Cache *cache) noexcept nogil:
    """Return whether more pages can be asked for. If necessary, some that nobody waits for are given back."""
    return _place(cache) != NULL


cdef int spare_make_place(Cache *cache, size_t n) noexcept nogil:
    """Return whether more pages for n bytes can be asked for. If necessary, some of another size are given back."""
    cdef Spare *spare
    cdef Spare *other = NULL
    cdef int32_t i
    for i in range(SPARES_MAX):
        spare = &cache.spares[i]
        if load_int(&spare.state) == SPARE_NONE:
            return 1
        if _can_drop(spare) and not _fits(spare, n):
            other = spare
    if other != NULL:
        _drop(cache, other)
    return other != NULL


cdef size_t spare_kept_bytes(const Cache *cache) noexcept nogil:
    """Return the size of the pages that cannot be given back: those that are not ready, or that a request waits for."""
    cdef const Spare *spare
    cdef size_t n = 0
    cdef int32_t i, state
    for i in range(SPARES_MAX):
        spare = &cache.spares[i]
        state = load_int(&spare.state)
        if state != SPARE_NONE and not _can_drop(spare):
            n += spare.capacity
    return n


cdef Spare *_place(Cache *cache) noexcept nogil:
    """Return a place for other pages, in which there may be some that are given back; NULL if all are being prepared."""
    cdef int32_t i, _look
    for _look in range(2):
        for i in range(SPARES_MAX):
            if load_int(&cache.spares[i].state) == SPARE_NONE:
                return &cache.spares[i]
        if not spare_drop_one(cache):
            break
    return NULL


cdef int spare_ask(Cache *cache, int32_t row, size_t n, uint64_t blob) noexcept nogil:
    """Let the other thread prepare n bytes, and copy as many of the blob into them, unless it is 0. `row` is one that the
    caller has, or -1. Return whether it will; if not, the row is gone."""
    cdef Spare *spare = _place(cache)
    if spare == NULL:
        if row >= 0:
            memory_drop(cache.memory, row)
        return 0
    row = memory_reserve(cache.memory, n, row)
    if row < 0:
        return 0
    cache.last_spare += 1
    spare.row = row
    spare.n = n
    spare.capacity = max(cache_rounded(n), cache.memory.rows[row].capacity)
    spare.number = cache.last_spare
    spare.blob = blob
    spare.is_left = 0
    spare.n_copied = n if blob else 0
    spare.is_locked = 0
    cache.n_spare += spare.capacity
    store_int(&spare.state, SPARE_WANTED)
    fetch_add_int(&cache.memory.news, 1)
    futex_wake_all(&cache.memory.news)
    return 1


cdef void _copy(Cache *cache, Spare *spare) noexcept nogil:
    cdef llamad_blob *blob = blob_use(spare.blob)
    if blob == NULL or spare.n > blob.capacity:
        spare.n_copied = 0
    else:
        memcpy(cache.memory.places[spare.row].data, blob.data, spare.n)
    if blob != NULL:
        blob_leave(blob)


cdef void _lock(Cache *cache, Spare *spare) noexcept nogil:
    """Lock the pages of a state that was inserted, if a device will read it: some request waits for it."""
    if cache.has_device and spare.n_copied:
        spare.is_locked = cache.table.lock_pages(cache.ctx, cache.memory.places[spare.row].data, spare.n)


cdef Spare *_claimed(Cache *cache) noexcept nogil:
    """Return the pages that were asked for first, now for this thread to prepare; NULL if there are none."""
    cdef Spare *spare
    cdef Spare *first
    cdef int32_t i
    while True:
        first = NULL
        for i in range(SPARES_MAX):
            spare = &cache.spares[i]
            if load_int(&spare.state) == SPARE_WANTED and (first == NULL or spare.number < first.number):
                first = spare
        if first == NULL or swap_int(&first.state, SPARE_WANTED, SPARE_BUSY):
            return first


cdef int spare_prepare(Cache *cache) noexcept nogil:
    """Prepare the pages that were asked for first. Return whether there were any. Several threads beside the engine's may
    do so at once."""
    cdef Spare *spare = _claimed(cache)
    if spare == NULL:
        return 0
    if memory_populate(cache.memory, spare.row, spare.n) != 0:
        spare.n_copied = 0
    elif spare.blob:
        _copy(cache, spare)
        _lock(cache, spare)
    store_int(&spare.state, SPARE_READY)
    return 1


cdef void spare_unlock_all(Cache *cache) noexcept nogil:
    """Unlock all pages, because the engine ends. After the other thread."""
    cdef int32_t i
    for i in range(SPARES_MAX):
        if load_int(&cache.spares[i].state) == SPARE_READY:
            _unlock(cache, &cache.spares[i])
