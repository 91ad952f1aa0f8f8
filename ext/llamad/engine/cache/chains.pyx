# Owns: how the state of one slot lies in several entries of the prompt cache. Runs on the engine thread, between two
# steps. It adds and drops no entries; cache_saves.pyx and host_cache.pyx do.
#
# An entry has all tokens of its prompt, but only the cells from `begin` on: the entry before it has the others. A
# conversation that grew by a turn adds an entry with the cells of that turn, and prompts that fork share the entries
# before the fork. An entry is at most SEGMENT_TOKENS long, so that a fork shares most of a long prompt, and so that
# saving one takes little time. A short last one is replaced by a longer one.
#
# llama.cpp saves and restores whole sequences. So a range of the slot's cells gets a spare sequence as second owner,
# which only marks the cells, and this sequence is saved. Restoring goes the other way. This needs a unified cache or a
# single slot, and a memory that has nothing but cells (docs/state.md).
#
# In other memories with cells (one stream for each slot, transposed values, windows, hybrid ones) the whole state is read
# once to a buffer (staging.pyx), and the parts are cut out of it (ses1/pieces.h). A prompt that comes back is joined
# there. What cannot be cut is the end of a state: the cells of a window, or a recurrent state. It is an entry without
# cells, which needs the part with the cell of its last token. A part can be used only with an end.
#
# Purely recurrent models have no cells. There, for prompts with images or sound, and for states that are too large for the
# buffer, an entry has the whole state.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from llamad.base.function_table cimport LLAMAD_STATE_PARTIAL
from llamad.base.system cimport load_int
from llamad.engine.cache.cache_lookup cimport cache_hash, cache_shares
from llamad.engine.cache.cache_types cimport PAGE, Cache, CacheEntry
from llamad.engine.cache.eviction cimport cache_is_kept
from llamad.engine.cache.staging cimport staging_capacity, staging_rest, staging_take
from llamad.engine.costs.scheduler cimport CACHE_TOKENS_MIN, SEGMENT_TOKENS, SEGMENT_TOKENS_MIN
from llamad.engine.kv.slots cimport Slot, Slots, slot_has_rows
from llamad.engine.kv.trust cimport trust_row
from llamad.protocol.adapter_span cimport AdapterSpan
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_END, LLAMAD_CACHE_OWN, LLAMAD_CACHE_STATE, LLAMAD_CACHE_TRUSTED, memory_risk, memory_survive, memory_use,
)
from llamad.ses1.ses1 cimport llamad_piece, piece_bytes, piece_cut, piece_end, piece_join

cdef enum:
    HEAD = 8                 # of SES1


# --- saving -------------------------------------------------------------------------------------------------------

cdef int chain_can_hold(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return whether the slot's state can be saved in parts, each by itself."""
    return cache.has_ranges and slot.n_pos == slot.n_tokens and not slot_has_rows(slots, slot)


cdef size_t chain_head_bytes(int32_t n_tokens) noexcept nogil:
    """Return how many bytes the entries of a prompt take beside its state: each has all tokens up to its last one, and
    whole pages."""
    cdef size_t n_parts = <size_t>(n_tokens // SEGMENT_TOKENS) + 2  # a short one, and the end
    return n_parts * (PAGE + <size_t>n_tokens * sizeof(int32_t))


cdef int chain_can_cut(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return whether parts can be cut out of the slot's state: whether the limit has room for a buffer with all of it, and
    for the parts beside that. If not, it is saved as a whole."""
    cdef size_t n
    if not cache.has_cuts or slot.n_pos != slot.n_tokens or slot_has_rows(slots, slot):
        return 0
    n = piece_bytes(cache.trust.layout, <uint32_t>slot.n_tokens)
    return staging_capacity(n) + n + chain_head_bytes(slot.n_tokens) + cache.checkpoints.n_bytes <= cache.bytes_max


cdef int _is_extensible(const Cache *cache, const CacheEntry *entry, uint64_t owner) noexcept nogil:
    """Return whether parts with this owner may need the entry: other engines may have it, too, and its bytes are known to
    be right. Others than its owner may find a first entry, but not what follows it (cache_lookup.pyx)."""
    return (not entry.is_held and entry.owner == owner
            and cache.memory.rows[entry.row].state != <unsigned int>LLAMAD_CACHE_OWN
            and load_int(&cache.memory.places[entry.row].trust) == LLAMAD_CACHE_TRUSTED)


cdef int64_t _longest(const Cache *cache, const Slot *slot) noexcept nogil:
    """Return the index of the entry that has most of the slot's cells, with those before it; -1 if there is none. Only
    where ends say what can be used, it may have more."""
    cdef const CacheEntry *entry
    cdef int64_t i, longest = -1
    cdef int32_t n, n_longest = 0
    cdef uint64_t hash = cache_hash(slot.tokens)
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        n = min(entry.n_tokens, slot.n_tokens)
        if n <= n_longest or entry.kind == <uint32_t>LLAMAD_CACHE_END or not _is_extensible(cache, entry, slot.owner):
            continue
        if entry.n_tokens > n and (not cache.needs_ends or entry.begin >= n):
            continue
        if cache_shares(cache, entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens) == n:
            longest = i
            n_longest = n
    return longest


cdef int64_t chain_saved(const Cache *cache, const Slot *slot) noexcept nogil:
    """Return the index of an entry with which all that the slot holds can be restored; -1 if there is none."""
    cdef const CacheEntry *entry
    cdef int64_t i
    cdef uint64_t hash = cache_hash(slot.tokens)
    if not cache.needs_ends:
        i = _longest(cache, slot)
        return i if i >= 0 and cache.entries[i].n_tokens == slot.n_tokens else -1
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        if entry.n_tokens != slot.n_tokens or not _is_extensible(cache, entry, slot.owner) or (
                entry.kind != <uint32_t>LLAMAD_CACHE_END and entry.kind != <uint32_t>LLAMAD_CACHE_STATE):
            continue
        if cache_shares(cache, entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens) == slot.n_tokens:
            return i
    return -1


cdef int64_t chain_ending(const Cache *cache, const int32_t *tokens, int32_t n, uint64_t owner,
                          const AdapterSpan *adapters) noexcept nogil:
    """Return the index of an entry with these tokens and no others, behind which a part of the same owner can be inserted;
    -1 if there is none."""
    cdef const CacheEntry *entry
    cdef int64_t i
    cdef uint64_t hash
    if not cache.has_ranges or n < CACHE_TOKENS_MIN:
        return -1
    hash = cache_hash(tokens)
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        if entry.n_tokens == n and _is_extensible(cache, entry, owner) and (
                cache_shares(cache, entry, hash, adapters, owner, tokens, n) == n):
            return i
    return -1


cdef int _is_replaced(const Cache *cache, const Slot *slot, int64_t i) noexcept nogil:
    """Return whether a part of the slot can take the place of the entry, which is short. Its ends then need that part."""
    cdef const CacheEntry *entry = &cache.entries[i]
    if cache.needs_ends and entry.kind == <uint32_t>LLAMAD_CACHE_STATE:
        return 0  # it has an end of its own
    return (entry.n_tokens < slot.n_tokens and entry.n_tokens - entry.begin < SEGMENT_TOKENS_MIN
            and entry.n_behind == entry.n_ends and not cache_is_kept(cache, i))


cdef void chain_plan(const Cache *cache, const Slot *slot, Segment *part) noexcept nogil:
    """Choose the part of the slot that is saved next. It is empty if the cache has all of the slot; then chain_saved() is
    the entry."""
    cdef int64_t i = _longest(cache, slot)
    cdef const CacheEntry *entry
    part.begin = part.is_end = 0
    part.before = part.replaced = -1
    if cache.needs_ends and chain_saved(cache, slot) >= 0:
        part.begin = slot.n_tokens
    elif i >= 0:
        entry = &cache.entries[i]
        part.begin = min(entry.n_tokens, slot.n_tokens)
        part.before = entry.row
        part.is_end = cache.needs_ends and part.begin == slot.n_tokens
        if _is_replaced(cache, slot, i):
            part.begin = entry.begin
            part.before = entry.before
            part.replaced = entry.row
    part.end = min(slot.n_tokens, part.begin + <int32_t>SEGMENT_TOKENS)


cdef int chain_is_saved(const Segment *part) noexcept nogil:
    """Return whether there is nothing to save."""
    return part.begin == part.end and not part.is_end


cdef size_t chain_end_bytes(const Slots *slots, const Slot *slot) noexcept nogil:
    """Return the size of an entry for the end of the slot's state."""
    return (HEAD + <size_t>slot.n_tokens * sizeof(int32_t)
            + slots.table.state_size(slots.ctx, slot.id, LLAMAD_STATE_PARTIAL))


cdef int64_t chain_cut(const Cache *cache, const Segment *part, uint8_t *out, size_t n_out) noexcept nogil:
    """Write this part of the state in the buffer, if there is room. Return its size, or a negative number if it cannot be
    cut."""
    cdef llamad_piece state
    state.data = cache.staging.data
    state.n = cache.staging.n_state
    if part.is_end:
        return piece_end(cache.trust.layout, state, out, n_out)
    return piece_cut(cache.trust.layout, state, part.begin, part.end, out, n_out)


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
    """Note that the cells of the entry follow those of another one, which has the row `before`, or that the entry is an
    end, and the other one has the cell of its last token."""
    cdef CacheEntry *first = &cache.entries[cache.by_row[before]]
    cdef int is_end = cache.entries[i].kind == <uint32_t>LLAMAD_CACHE_END
    cache.entries[i].before = before
    cache.entries[i].begin = cache.entries[i].n_tokens if is_end else first.n_tokens
    cache.memory.rows[cache.entries[i].row].before = first.id
    first.n_behind += 1
    first.n_ends += is_end


cdef void chain_replace(Cache *cache, int32_t old, int64_t i) noexcept nogil:
    """Let the ends that need the entry in the row `old` need entry i instead, which has the same cells and more."""
    cdef int64_t k
    for k in range(cache.n_entries):
        if cache.entries[k].before == old and cache.entries[k].kind == <uint32_t>LLAMAD_CACHE_END:
            cache.entries[cache.by_row[old]].n_behind -= 1
            cache.entries[cache.by_row[old]].n_ends -= 1
            chain_link(cache, k, cache.entries[i].row)


cdef int chain_is_joined(const Cache *cache, int64_t i) noexcept nogil:
    """Return whether the entry is restored through the buffer."""
    return cache.has_cuts and cache.entries[i].before >= 0


cdef int64_t chain_before(const Cache *cache, int64_t i) noexcept nogil:
    """Return the index of the entry with the cells before this one's, or -1."""
    cdef int32_t row = cache.entries[i].before
    return cache.by_row[row] if row >= 0 else -1


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


cdef int64_t chain_unlocked(const Cache *cache, int64_t i) noexcept nogil:
    """Return the index of the entry, or of one before it, whose pages nobody has tried to lock; -1 if there is none."""
    if chain_is_joined(cache, i):
        return -1  # a device reads it from the buffer
    while i >= 0 and cache.entries[i].is_locked:
        i = chain_before(cache, i)
    return i


cdef void chain_lock(Cache *cache, int64_t i) noexcept nogil:
    """Lock the pages of one entry, so that a device reads them faster. This is tried only once for each."""
    cdef CacheEntry *entry = &cache.entries[i]
    entry.is_locked = 1 if cache.table.lock_pages(cache.ctx, entry.pages, entry.capacity) else -1


cdef int chain_restore_part(Cache *cache, const Slot *slot, int64_t i) noexcept nogil:
    """Add the entry's cells to the slot's sequence, which has those before them. Return 1, or 0 if that was not possible;
    then the sequence has what it had. If llama.cpp ends the engine here, the next one does not try the entry again."""
    cdef const CacheEntry *entry = &cache.entries[i]
    cdef int32_t seq = cache.spare_seq if entry.begin else slot.id
    cdef uint64_t n = <uint64_t>entry.n_tokens * sizeof(int32_t) + HEAD
    cdef unsigned int state
    if not trust_row(&cache.trust, entry.row):
        return 0
    if cache.has_device and entry.is_locked == 0:
        chain_lock(cache, i)  # even for a single use: locking takes a third of the time that it saves (H200)
    state = memory_risk(cache.memory, entry.row)
    if cache.table.state_set(cache.ctx, seq, entry.pages + n, entry.n_state, 0) != entry.n_state:
        cache.table.seq_rm(cache.ctx, seq, -1, -1)
        return 0
    if seq != slot.id:
        cache.table.seq_cp(cache.ctx, seq, slot.id, -1, -1)
        cache.table.seq_rm(cache.ctx, seq, -1, -1)
    memory_survive(cache.memory, entry.row, state)
    return 1


cdef int64_t _first_bad(const Cache *cache, int64_t i) noexcept nogil:
    """Return the index of the entry, or of one before it, whose bytes cannot be used; -1 if there is none."""
    while i >= 0 and trust_row(&cache.trust, cache.entries[i].row):
        i = chain_before(cache, i)
    return i


cdef void _risk(Cache *cache, int64_t i, int is_over) noexcept nogil:
    """Note that llama.cpp begins to read the entry and those before it, or that it has read them."""
    while i >= 0:
        if is_over:
            memory_survive(cache.memory, cache.entries[i].row, cache.entries[i].risked)
        else:
            cache.entries[i].risked = memory_risk(cache.memory, cache.entries[i].row)
        i = chain_before(cache, i)


cdef int64_t _join(Cache *cache, int64_t i, int32_t seq) noexcept nogil:
    """Join the entry and those before it in the buffer. Return the size of the state, or a negative number."""
    cdef llamad_piece end
    cdef llamad_piece *pieces
    cdef int32_t n_tokens = cache.entries[i].n_tokens
    cdef int64_t k, n
    cdef size_t n_pieces = 0, at
    cdef uint8_t *out
    end.data = NULL
    end.n = 0
    if cache.entries[i].kind == <uint32_t>LLAMAD_CACHE_END:
        end = _state(&cache.entries[i])
        i = chain_before(cache, i)
    k = i
    while k >= 0:
        n_pieces += 1
        k = chain_before(cache, k)
    pieces = <llamad_piece *>calloc(n_pieces, sizeof(llamad_piece))
    if pieces == NULL:
        return -1
    at = n_pieces
    while i >= 0:
        at -= 1
        pieces[at] = _state(&cache.entries[i])
        i = chain_before(cache, i)
    n = piece_join(cache.trust.layout, pieces, n_pieces, n_tokens, end, seq, NULL, 0)
    out = staging_take(&cache.staging, <size_t>n) if n > 0 else NULL
    n = piece_join(cache.trust.layout, pieces, n_pieces, n_tokens, end, seq, out, <size_t>n) if out != NULL else -1
    free(pieces)
    return n


cdef llamad_piece _state(const CacheEntry *entry) noexcept nogil:
    """Return the bytes that llama.cpp wrote, or parts of them."""
    cdef llamad_piece state
    state.data = entry.pages + HEAD + <size_t>entry.n_tokens * sizeof(int32_t)
    state.n = entry.n_state
    return state


cdef int64_t _restore_joined(Cache *cache, const Slot *slot, int64_t i) noexcept nogil:
    """Make the slot's sequence, which is empty, hold the whole state. Return -1, or the index of the entry that cannot be
    restored."""
    cdef int64_t bad = _first_bad(cache, i), n
    if bad >= 0:
        return bad
    n = _join(cache, i, slot.id)
    if n < 0:
        return i
    _risk(cache, i, 0)
    if <int64_t>cache.table.state_set(cache.ctx, slot.id, cache.staging.data, <size_t>n, 0) != n:
        bad = i
    _risk(cache, i, 1)
    staging_rest(&cache.staging)
    return bad


cdef int64_t chain_restore(Cache *cache, const Slot *slot, int64_t i) noexcept nogil:
    """Make the slot's sequence, which is empty, hold the whole state. Return -1, or the index of the entry that cannot be
    restored; then the sequence is empty."""
    cdef int64_t k
    cdef int32_t n = 0
    if chain_is_joined(cache, i):
        k = _restore_joined(cache, slot, i)
        if k >= 0:
            cache.table.seq_rm(cache.ctx, slot.id, -1, -1)
        return k
    while n < cache.entries[i].n_tokens:
        k = chain_part(cache, i, n)
        if not chain_restore_part(cache, slot, k):
            cache.table.seq_rm(cache.ctx, slot.id, -1, -1)
            return k
        n = cache.entries[k].n_tokens
    return -1
