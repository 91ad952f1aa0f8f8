# Owns: how the state of one slot lies in several entries of the prompt cache. Runs on the engine thread, between two
# steps. It adds and drops no entries; host_cache.pyx does.
#
# An entry has all tokens of its prompt, but only the cells from `begin` on: the entry before it has the others. A
# conversation that grew by a turn adds an entry with the cells of that turn, and prompts that fork share the entries
# before the fork. An entry is at most SEGMENT_TOKENS long, so that a fork shares most of a long prompt, and so that
# saving one takes little time. A short last one is replaced by a longer one.
#
# llama.cpp saves and restores whole sequences. So a range of the slot's cells gets a spare sequence as second owner,
# which only marks the cells, and this sequence is saved. Restoring goes the other way. This needs a unified cache and a
# memory that has nothing but cells (docs/state.md); in others, and for prompts with images or sound, an entry has the
# whole state.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.system cimport load_int
from llamad.engine.cache.cache_lookup cimport cache_hash, cache_shares
from llamad.engine.cache.cache_types cimport Cache, CacheEntry
from llamad.engine.cache.eviction cimport cache_is_kept
from llamad.engine.costs.scheduler cimport SEGMENT_TOKENS, SEGMENT_TOKENS_MIN
from llamad.engine.kv.slots cimport Slot, Slots, slot_has_rows
from llamad.engine.kv.trust cimport trust_row
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_OWN, LLAMAD_CACHE_TRUSTED, memory_risk, memory_survive, memory_use,
)

cdef enum:
    HEAD = 8                 # of SES1


# --- saving -------------------------------------------------------------------------------------------------------

cdef int chain_can_hold(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return whether the slot's state can be saved in parts."""
    return cache.has_ranges and slot.n_pos == slot.n_tokens and not slot_has_rows(slots, slot)


cdef int64_t _longest(const Cache *cache, const Slot *slot) noexcept nogil:
    """Return the index of the longest entry of the slot's owner that the slot's tokens begin with, if other engines may
    have it, too, and its bytes are known to be right; -1 if there is none."""
    cdef const CacheEntry *entry
    cdef int64_t i, longest = -1
    cdef int32_t n_longest = 0
    cdef uint64_t hash = cache_hash(slot.tokens)
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        if entry.n_tokens <= n_longest or entry.n_tokens > slot.n_tokens or entry.is_held:
            continue
        if entry.owner != slot.owner:
            continue  # others may find the first entry, but not what follows it (cache_lookup.pyx)
        if cache.memory.rows[entry.row].state == <unsigned int>LLAMAD_CACHE_OWN:
            continue
        if load_int(&cache.memory.places[entry.row].trust) != LLAMAD_CACHE_TRUSTED:
            continue
        if cache_shares(cache, entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens) == entry.n_tokens:
            longest = i
            n_longest = entry.n_tokens
    return longest


cdef void chain_plan(const Cache *cache, const Slot *slot, Segment *part) noexcept nogil:
    """Choose the part of the slot that is saved next. It is empty if the cache has all of the slot."""
    cdef int64_t i = _longest(cache, slot)
    cdef const CacheEntry *entry
    part.begin = 0
    part.before = part.replaced = -1
    if i >= 0:
        entry = &cache.entries[i]
        part.begin = entry.n_tokens
        part.before = entry.row
        if (entry.n_tokens < slot.n_tokens and entry.n_tokens - entry.begin < SEGMENT_TOKENS_MIN and entry.n_behind == 0
                and not cache_is_kept(cache, i)):
            part.begin = entry.begin
            part.before = entry.before
            part.replaced = entry.row
    part.end = min(slot.n_tokens, part.begin + <int32_t>SEGMENT_TOKENS)


cdef int32_t chain_open(const Cache *cache, const Slot *slot, const Segment *part) noexcept nogil:
    """Return a sequence with the cells of this part. Nothing may be pending for the slot."""
    if part.begin == 0 and part.end == slot.n_tokens:
        return slot.id
    cache.table.seq_cp(cache.ctx, slot.id, cache.spare_seq, part.begin, part.end)
    return cache.spare_seq


cdef void chain_close(const Cache *cache, const Slot *slot, int32_t seq) noexcept nogil:
    if seq != slot.id:
        cache.table.seq_rm(cache.ctx, seq, -1, -1)


# --- entries that follow each other ---------------------------------------------------------------------------------

cdef void chain_link(Cache *cache, int64_t i, int32_t before) noexcept nogil:
    """Note that the cells of the entry follow those of another one, which has the row `before`."""
    cdef CacheEntry *first = &cache.entries[cache.by_row[before]]
    cache.entries[i].before = before
    cache.entries[i].begin = first.n_tokens
    cache.memory.rows[cache.entries[i].row].before = first.id
    first.n_behind += 1


cdef int64_t chain_before(const Cache *cache, int64_t i) noexcept nogil:
    """Return the index of the entry with the cells before this one's, or -1."""
    cdef int32_t row = cache.entries[i].before
    return cache.by_row[row] if row >= 0 else -1


cdef int chain_has(const Cache *cache, int64_t i, int64_t k) noexcept nogil:
    """Return whether entry k is entry i or one before it. -1 is none."""
    while i >= 0 and i != k:
        i = chain_before(cache, i)
    return i >= 0


cdef void chain_use(Cache *cache, int64_t i) noexcept nogil:
    """Note that the entry and those before it were used, these later."""
    while i >= 0:
        memory_use(cache.memory, cache.entries[i].row)
        i = chain_before(cache, i)


cdef int32_t chain_return(Cache *cache, int64_t i) noexcept nogil:
    """Note that the prompt of this entry has returned. Return how often it has."""
    cdef int64_t k = i
    while k >= 0:
        if not cache.entries[k].is_held:
            cache.memory.rows[cache.entries[k].row].n_returns += 1
        k = chain_before(cache, k)
    chain_use(cache, i)
    return cache.memory.rows[cache.entries[i].row].n_returns


cdef size_t chain_bytes(const Cache *cache, int64_t i) noexcept nogil:
    """Return the size of the whole state."""
    cdef size_t n = 0
    while i >= 0:
        n += cache.entries[i].n_state
        i = chain_before(cache, i)
    return n


# --- restoring ------------------------------------------------------------------------------------------------------

cdef int64_t chain_part(const Cache *cache, int64_t i, int32_t begin) noexcept nogil:
    """Return the index of entry i or of one before it: the one whose cells begin with this token; -1 if there is none."""
    while i >= 0 and cache.entries[i].begin > begin:
        i = chain_before(cache, i)
    return i if i >= 0 and cache.entries[i].begin == begin else -1


cdef int32_t chain_boundary(const Cache *cache, int64_t i, int32_t n) noexcept nogil:
    """Return the largest number of tokens up to n after which a part of entry i begins."""
    while cache.entries[i].begin > n:
        i = chain_before(cache, i)
    return cache.entries[i].begin


cdef int chain_restore_part(Cache *cache, const Slot *slot, int64_t i) noexcept nogil:
    """Add the entry's cells to the slot's sequence, which has those before them. Return 1, or 0 if that was not possible;
    then the sequence has what it had. If llama.cpp ends the engine here, the next one does not try the entry again."""
    cdef const CacheEntry *entry = &cache.entries[i]
    cdef int32_t seq = cache.spare_seq if entry.begin else slot.id
    cdef uint64_t n = <uint64_t>entry.n_tokens * sizeof(int32_t) + HEAD
    cdef unsigned int state
    if not trust_row(&cache.trust, entry.row):
        return 0
    state = memory_risk(cache.memory, entry.row)
    if cache.table.state_set(cache.ctx, seq, entry.pages + n, entry.n_state, 0) != entry.n_state:
        cache.table.seq_rm(cache.ctx, seq, -1, -1)
        return 0
    if seq != slot.id:
        cache.table.seq_cp(cache.ctx, seq, slot.id, -1, -1)
        cache.table.seq_rm(cache.ctx, seq, -1, -1)
    memory_survive(cache.memory, entry.row, state)
    return 1


cdef int64_t chain_restore(Cache *cache, const Slot *slot, int64_t i) noexcept nogil:
    """Make the slot's sequence, which is empty, hold the whole state. Return -1, or the index of the entry that cannot be
    restored; then the sequence is empty."""
    cdef int64_t k
    cdef int32_t n = 0
    while n < cache.entries[i].n_tokens:
        k = chain_part(cache, i, n)
        if not chain_restore_part(cache, slot, k):
            cache.table.seq_rm(cache.ctx, slot.id, -1, -1)
            return k
        n = cache.entries[k].n_tokens
    return -1
