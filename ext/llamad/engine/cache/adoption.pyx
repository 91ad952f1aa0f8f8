# Owns: what an engine takes over from one that has ended: prompt cache entries, and the checkpoints of their tokens. Runs
# once, before the engine thread does. Trusts no bytes of it; trust.pyx checks them before their first use.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from llamad.engine.cache.cache_entries cimport entries_add, entries_drop_chain, entries_drop_rest
from llamad.engine.cache.cache_types cimport Cache, CacheEntry
from llamad.engine.cache.chains cimport chain_link
from llamad.engine.costs.scheduler cimport CACHE_ENTRIES_MAX, CACHE_TOKENS_MIN
from llamad.engine.kv.checkpoints cimport (
    Checkpoint, CheckpointList, checkpoint_adopt, checkpoint_let_go, list_add, list_drop, list_init,
)
from llamad.engine.kv.slots cimport Slots
from llamad.protocol.adapter_span cimport span_common
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_CHECKPOINT, LLAMAD_CACHE_END, LLAMAD_CACHE_PART, LLAMAD_CACHE_READY, LLAMAD_CACHE_ROWS, llamad_cache,
    llamad_cache_row, memory_adopt, memory_drop, memory_prefix,
)


cdef int _is_ready(const llamad_cache *memory, int32_t row, int is_checkpoint) noexcept nogil:
    """Return whether the row is a READY checkpoint, or a READY entry."""
    return memory.rows[row].state == LLAMAD_CACHE_READY and (
        is_checkpoint == (memory.rows[row].kind == <uint32_t>LLAMAD_CACHE_CHECKPOINT))


cdef int _is_usable(const Cache *cache, const Slots *slots, int32_t row) noexcept nogil:
    cdef int32_t n_tokens = cache.memory.rows[row].n_tokens
    cdef uint32_t kind = cache.memory.rows[row].kind
    if not cache.needs_ends and (kind == <uint32_t>LLAMAD_CACHE_PART or kind == <uint32_t>LLAMAD_CACHE_END):
        return 0
    return (cache.bytes_max > 0 and cache.n_entries < CACHE_ENTRIES_MAX and cache.trust.layout != NULL
            and CACHE_TOKENS_MIN <= n_tokens <= slots.n_ctx)


cdef int _is_of(const llamad_cache_row *about, const CacheEntry *entry, int32_t n_tokens, uint64_t prefix) noexcept nogil:
    """Return whether the checkpoint was made after these tokens, with the same adapters and for the same owner."""
    return (about.n_tokens == n_tokens and about.before == prefix and about.owner == entry.owner
            and about.adapters_base == entry.adapters.base and about.adapters_set == entry.adapters.set
            and about.n_base == entry.adapters.n_base)


cdef int32_t _row_of(const Cache *cache, uint64_t id) noexcept nogil:
    cdef int64_t i
    for i in range(cache.n_entries):
        if cache.entries[i].id == id:
            return cache.entries[i].row
    return -1


cdef int _follows(const CacheEntry *entry, const CacheEntry *first, int32_t begin) noexcept nogil:
    """Return whether the first entry has the cells of the other's tokens before `begin`, and no others unless that is an
    end."""
    return ((first.n_tokens >= begin if entry.kind == <uint32_t>LLAMAD_CACHE_END else first.n_tokens == begin)
            and first.kind != <uint32_t>LLAMAD_CACHE_END and first.owner == entry.owner
            and span_common(&first.adapters, &entry.adapters, begin) == begin
            and memcmp(first.tokens, entry.tokens, <size_t>begin * sizeof(int32_t)) == 0)


cdef int32_t _begin(const Cache *cache, int64_t i) noexcept nogil:
    """Return how many of its tokens an entry lacks the cells of."""
    cdef const CacheEntry *entry = &cache.entries[i]
    return entry.n_tokens if entry.kind == <uint32_t>LLAMAD_CACHE_END else cache.memory.places[entry.row].begin


cdef void _link_entries(Cache *cache) noexcept nogil:
    """Link entries to those before them, and drop those that cannot be used."""
    cdef llamad_cache *memory = cache.memory
    cdef int64_t i = 0, first
    cdef int32_t begin, row
    cdef int can_link = cache.has_ranges or cache.has_cuts
    for i in range(cache.n_entries):
        begin = _begin(cache, i)
        row = _row_of(cache, memory.rows[cache.entries[i].row].before) if begin and can_link else -1
        first = cache.by_row[row] if row >= 0 else -1
        if first >= 0 and _follows(&cache.entries[i], &cache.entries[first], begin):
            chain_link(cache, i, row)
    i = 0
    while i < cache.n_entries:
        if _begin(cache, i) != cache.entries[i].begin:
            entries_drop_chain(cache, i)
            i = 0
        else:
            i += 1


cdef void _drop_useless(Cache *cache) noexcept nogil:
    """Drop the parts that no end needs."""
    cdef int64_t i = 0, n
    while i < cache.n_entries:
        n = cache.n_entries
        entries_drop_rest(cache, cache.entries[i].row)
        i = i + 1 if n == cache.n_entries else 0


ctypedef struct LeftCheckpoints:
    int32_t rows[LLAMAD_CACHE_ROWS]           # checkpoints, in the order of their numbers of tokens
    Checkpoint *taken[LLAMAD_CACHE_ROWS]      # those that some entry has got, by row; this is a use, too
    int32_t n


cdef void _list_checkpoints(const llamad_cache *memory, LeftCheckpoints *left) noexcept nogil:
    cdef int32_t row, i
    for row in range(LLAMAD_CACHE_ROWS):
        if _is_ready(memory, row, 1):
            i = left.n
            while i > 0 and memory.rows[left.rows[i - 1]].n_tokens > memory.rows[row].n_tokens:
                left.rows[i] = left.rows[i - 1]
                i -= 1
            left.rows[i] = row
            left.n += 1


cdef void _link(Cache *cache, LeftCheckpoints *left, CheckpointList *items, int32_t row) noexcept nogil:
    if left.taken[row] == NULL:
        left.taken[row] = checkpoint_adopt(cache.checkpoints, row)
        if left.taken[row] == NULL:
            return
        left.taken[row].n_refs += 1  # it stays, even if the list that has it gives it up for later ones
    if items.n == cache.checkpoints.n_max:
        list_drop(cache.checkpoints, items, 0)
    list_add(items, left.taken[row])


cdef void _link_all(Cache *cache, LeftCheckpoints *left, CacheEntry *entry) noexcept nogil:
    """Give the entry the checkpoints that were made after its first tokens; the last ones, if there are too many."""
    cdef llamad_cache_row *rows = cache.memory.rows
    cdef uint64_t prefix = 0
    cdef int32_t i, k = 0
    if list_init(&entry.checkpoints, cache.checkpoints.n_max) < 0:
        return
    for i in range(1, entry.n_tokens + 1):
        prefix = memory_prefix(prefix, entry.tokens[i - 1])
        while k < left.n and rows[left.rows[k]].n_tokens <= i:
            if _is_of(&rows[left.rows[k]], entry, i, prefix) and (
                    entry.checkpoints.n == 0 or entry.checkpoints.items[entry.checkpoints.n - 1].n_tokens < i):
                _link(cache, left, &entry.checkpoints, left.rows[k])
            k += 1


cdef void _adopt_checkpoints(Cache *cache) noexcept nogil:
    """Link the checkpoints to the entries that can use them, and drop the others."""
    cdef LeftCheckpoints *left = <LeftCheckpoints *>calloc(1, sizeof(LeftCheckpoints))
    cdef int64_t i
    if left == NULL:
        return
    _list_checkpoints(cache.memory, left)
    if cache.checkpoints.n_max:
        for i in range(cache.n_entries):
            if cache.entries[i].kind != <uint32_t>LLAMAD_CACHE_PART:
                _link_all(cache, left, &cache.entries[i])
    for i in range(left.n):
        if left.taken[left.rows[i]] == NULL:
            memory_drop(cache.memory, left.rows[i])
        else:
            checkpoint_let_go(cache.checkpoints, left.taken[left.rows[i]])
    free(left)


cdef int32_t adoption_run(Cache *cache, const Slots *slots, const uint8_t *fingerprint) noexcept nogil:
    """Adopt what the memory holds, if it has this fingerprint. Return the number of entries."""
    cdef llamad_cache *memory = cache.memory
    cdef int32_t row
    memory_adopt(memory, fingerprint)
    for row in range(LLAMAD_CACHE_ROWS):
        if _is_ready(memory, row, 0):
            if _is_usable(cache, slots, row):
                entries_add(cache, row)
            else:
                memory_drop(memory, row)
    _link_entries(cache)
    _drop_useless(cache)
    _adopt_checkpoints(cache)
    return <int32_t>cache.n_entries
