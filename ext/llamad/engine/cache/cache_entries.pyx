# Owns: the list of the prompt cache's entries. Runs on the engine thread, between two steps. It decides nothing, and no
# state is read or written here.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from llamad.engine.cache.cache_lookup cimport cache_hash
from llamad.engine.cache.cache_types cimport Cache, CacheEntry
from llamad.engine.cache.chains cimport chain_before
from llamad.engine.cache.eviction cimport cache_is_kept
from llamad.engine.kv.checkpoints cimport list_free
from llamad.protocol.adapter_span cimport AdapterSpan
from llamad.protocol.cache_memory cimport LLAMAD_CACHE_END, LLAMAD_CACHE_PART, llamad_cache_row, memory_drop

cdef enum:
    HEAD = 8                 # of SES1


cdef int64_t entries_index(const Cache *cache, uint64_t id) noexcept nogil:
    cdef int64_t i
    for i in range(cache.n_entries):
        if cache.entries[i].id == id:
            return i
    return -1


cdef const CacheEntry *entries_get(const Cache *cache, uint64_t id) noexcept nogil:
    """Return the entry, or NULL if it has been dropped. The pointer is valid until the cache changes."""
    cdef int64_t i = entries_index(cache, id)
    return NULL if i < 0 else &cache.entries[i]


cdef int32_t entries_remove(Cache *cache, int64_t i) noexcept nogil:
    """Remove an entry from the list; no other may need it. Return its row, which the caller owns then."""
    cdef int32_t row = cache.entries[i].row
    cdef int64_t first = chain_before(cache, i)
    if first >= 0:
        cache.entries[first].n_behind -= 1
        cache.entries[first].n_ends -= cache.entries[i].kind == <uint32_t>LLAMAD_CACHE_END
    if cache.entries[i].is_locked > 0:
        cache.table.unlock_pages(cache.ctx, cache.entries[i].pages)
    if cache.inserted == row:
        cache.inserted = -1
    list_free(cache.checkpoints, &cache.entries[i].checkpoints)
    cache.n_bytes -= cache.entries[i].capacity
    cache.n_entries -= 1
    cache.entries[i] = cache.entries[cache.n_entries]
    cache.by_row[cache.entries[i].row] = <int32_t>i
    return row


cdef void entries_drop_rest(Cache *cache, int32_t row) noexcept nogil:
    """Drop the part in this row and those before it, as far as no end needs them any more. -1 is none."""
    cdef int64_t i
    while row >= 0:
        i = cache.by_row[row]
        if cache.entries[i].kind != <uint32_t>LLAMAD_CACHE_PART or cache.entries[i].n_behind or cache_is_kept(cache, i):
            return
        row = cache.entries[i].before
        memory_drop(cache.memory, entries_remove(cache, i))


cdef void entries_drop(Cache *cache, int64_t i) noexcept nogil:
    """Drop an entry that no other needs, and the parts that are useless without it."""
    cdef int32_t before = cache.entries[i].before
    memory_drop(cache.memory, entries_remove(cache, i))
    entries_drop_rest(cache, before)


cdef void _drop_behind(Cache *cache, int32_t row) noexcept nogil:
    cdef int64_t k = 0
    while cache.entries[cache.by_row[row]].n_behind and k < cache.n_entries:
        if cache.entries[k].before == row:
            _drop_behind(cache, cache.entries[k].row)
            k = 0
        else:
            k += 1
    memory_drop(cache.memory, entries_remove(cache, cache.by_row[row]))


cdef void entries_drop_chain(Cache *cache, int64_t i) noexcept nogil:
    """Drop an entry, all that need it, and the parts that are useless without it."""
    cdef int32_t before = cache.entries[i].before
    _drop_behind(cache, cache.entries[i].row)
    entries_drop_rest(cache, before)


cdef void entries_describe(Cache *cache, int32_t row, uint32_t kind, int32_t n_tokens, size_t n_bytes,
                           const AdapterSpan *adapters, uint64_t owner, uint64_t session,
                           int32_t retention_s) noexcept nogil:
    """Fill the row of a state, a part or an end, and the head of its pages, for entries_add()."""
    cdef llamad_cache_row *about = &cache.memory.rows[row]
    cdef uint8_t *pages = cache.memory.places[row].data
    memcpy(pages, <const char *>b"SES1", 4)
    memcpy(pages + 4, &n_tokens, 4)
    about.kind = kind
    about.n_tokens = n_tokens
    about.n_bytes = n_bytes
    about.owner = owner
    about.adapters_base = adapters.base
    about.adapters_set = adapters.set
    about.n_base = adapters.n_base
    about.session = session
    about.retention_s = retention_s


cdef CacheEntry *entries_add(Cache *cache, int32_t row) noexcept nogil:
    """Append the entry that the row describes, without checkpoints. There must be room in the list."""
    cdef const llamad_cache_row *about = &cache.memory.rows[row]
    cdef CacheEntry *entry = &cache.entries[cache.n_entries]
    memset(entry, 0, sizeof(CacheEntry))
    entry.row = row
    entry.kind = about.kind
    entry.id = about.id
    entry.owner = about.owner
    entry.adapters.base = about.adapters_base
    entry.adapters.set = about.adapters_set
    entry.adapters.n_base = about.n_base
    entry.n_tokens = about.n_tokens
    entry.pages = cache.memory.places[row].data
    entry.tokens = <const int32_t *>(entry.pages + HEAD)
    entry.first_hash = cache_hash(entry.tokens)
    entry.n_state = about.n_bytes - HEAD - <size_t>about.n_tokens * sizeof(int32_t)
    entry.capacity = about.capacity
    entry.before = -1
    cache.by_row[row] = <int32_t>cache.n_entries
    cache.n_entries += 1
    cache.n_bytes += entry.capacity
    return entry
