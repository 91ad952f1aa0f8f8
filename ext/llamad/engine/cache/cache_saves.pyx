# Owns: how slots are saved to the prompt cache in host memory. Runs on the engine thread, between two steps. It decides
# nothing: prefix/sharing.pyx and prefix/parking.pyx say what is saved.
#
# A slot is saved in parts, where that is possible (chains.pyx): through a spare sequence, or out of its whole state, which
# is read once to the buffer of staging.pyx. The end of the state comes last.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from llamad.base.system cimport now_us
from llamad.engine.cache.cache_entries cimport (
    entries_add, entries_describe, entries_drop, entries_drop_rest, entries_get, entries_index, entries_remove,
)
from llamad.engine.cache.cache_room cimport cache_has_staging_room, cache_take_pages
from llamad.engine.cache.cache_types cimport Cache, CacheEntry, cache_spent
from llamad.engine.cache.chains cimport (
    Segment, chain_can_cut, chain_can_hold, chain_close, chain_cut, chain_head_bytes, chain_is_saved, chain_link,
    chain_open, chain_plan, chain_replace, chain_saved, chain_use,
)
from llamad.engine.cache.host_cache cimport cache_drop_beginnings, cache_drop_superseded
from llamad.engine.cache.staging cimport staging_bytes, staging_has, staging_read, staging_rest, staging_take
from llamad.engine.costs.scheduler cimport CACHE_TOKENS_MIN, RISE_RATE, SEGMENT_TOKENS
from llamad.engine.kv.checkpoints cimport list_init, list_share
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_END, LLAMAD_CACHE_PART, LLAMAD_CACHE_STATE, memory_drop, memory_publish,
)

cdef enum:
    HEAD = 8                 # of SES1


cdef int32_t _take_replaced(Cache *cache, const Segment *part, size_t n) noexcept nogil:
    """Remove the entry that the part replaces. Return its row if n bytes could be written there, or -1."""
    cdef int32_t row = -1
    if part.replaced >= 0:
        row = entries_remove(cache, cache.by_row[part.replaced])
        if n > cache.memory.rows[row].span:
            memory_drop(cache.memory, row)
            row = -1
    return row


cdef int _has_ends_to_move(const Cache *cache, const Segment *part) noexcept nogil:
    """Return whether ends need the entry that the part replaces, so that it stays until they need the new one."""
    return part.replaced >= 0 and cache.entries[cache.by_row[part.replaced]].n_ends > 0


cdef int32_t _take_row(Cache *cache, const Slots *slots, const Slot *slot, const Segment *part, size_t n) noexcept nogil:
    """Return a row with pages for this part of the slot's state, of n bytes, or -1."""
    cdef int32_t row
    if part == NULL:
        return cache_take_pages(cache, n, cache_drop_beginnings(cache, slots, slot, n))
    if _has_ends_to_move(cache, part):
        cache.extended = part.replaced
        row = cache_take_pages(cache, n, -1)
    else:
        cache.extended = part.before
        row = cache_take_pages(cache, n, _take_replaced(cache, part, n))
    cache.extended = -1
    return row


cdef CacheEntry *_add(Cache *cache, const Slots *slots, const Slot *slot, int32_t row, uint32_t kind, int32_t n_tokens,
                      size_t n_state) noexcept nogil:
    """Append an entry with the slot's first n_tokens tokens, for this engine alone. Its row has the state already."""
    cdef size_t n_head = HEAD + <size_t>n_tokens * sizeof(int32_t)
    cdef CacheEntry *entry
    memcpy(cache.memory.places[row].data + HEAD, slot.tokens, n_head - HEAD)
    entries_describe(cache, row, kind, n_tokens, n_head + n_state, &slot.adapters, slot.owner, slot.session,
                     slot.retention_s)
    cache.memory.rows[row].n_returns = slot.n_returns
    entry = entries_add(cache, row)
    if kind != <uint32_t>LLAMAD_CACHE_PART and list_init(&entry.checkpoints, slot.checkpoints.n) == 0:
        list_share(cache.checkpoints, &entry.checkpoints, &slot.checkpoints)
    cache.n_saves += 1
    return entry


cdef void _learn(Cache *cache, int64_t t_start, double n_tokens) noexcept nogil:
    """Note how long it took to copy so many tokens. Another thread allocates most pages before, so they do not count. A
    short part takes nearly as long as a long one, and says little about a token of that. A lower cost is learned at once,
    a higher one slowly, because copies also wait for what a device still computes, and the first ones load code."""
    cdef double cost = <double>(now_us() - t_start - cache.pages_us) / max(n_tokens, <double>SEGMENT_TOKENS)
    cache.n_learned += 1
    if cache.save_token_us == 0 or cost < cache.save_token_us:
        cache.save_token_us = cost
    else:
        cache.save_token_us += RISE_RATE * (cost - cache.save_token_us)


cdef CacheEntry *_save(Cache *cache, Slots *slots, const Slot *slot, const Segment *part) noexcept nogil:
    """Save this part of the slot's state, or the whole if it is NULL, for this engine alone. Return its entry, or
    NULL."""
    cdef int64_t t_start = now_us()
    cdef int32_t n_end = slot.n_tokens if part == NULL else part.end
    cdef int32_t seq = slot.id if part == NULL else chain_open(cache, slot, part)
    cdef size_t n_head = HEAD + <size_t>n_end * sizeof(int32_t)
    cdef size_t n_state = slots.table.state_size(slots.ctx, seq, 0)
    cdef CacheEntry *entry
    cdef uint8_t *pages
    cdef int32_t row = -1
    if n_state > 0:
        row = _take_row(cache, slots, slot, part, n_head + n_state)
    if row < 0:
        chain_close(cache, slot, seq)
        return NULL
    pages = cache.memory.places[row].data
    if slots.table.state_get(slots.ctx, seq, pages + n_head, n_state, 0) != n_state:
        chain_close(cache, slot, seq)
        memory_drop(cache.memory, row)
        return NULL
    chain_close(cache, slot, seq)
    entry = _add(cache, slots, slot, row, LLAMAD_CACHE_STATE, n_end, n_state)
    if part != NULL and part.before >= 0:
        chain_link(cache, cache.n_entries - 1, part.before)
    chain_use(cache, cache.n_entries - 1)
    _learn(cache, t_start, n_end - entry.begin)
    cache_spent(cache, t_start)
    return entry


cdef void _publish(Cache *cache, const CacheEntry *entry) noexcept nogil:
    """Let others have the entry, too, unless it has rows of media, whose numbers only this engine knows."""
    cdef int32_t i
    for i in range(entry.n_tokens):
        if entry.tokens[i] < 0:
            return
    memory_publish(cache.memory, entry.row)


# --- cut out of whole states ----------------------------------------------------------------------------------------

cdef size_t _make_buffer(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Have a buffer for the slot's state. Return the size of the state, or 0 if there is no buffer, because the parts do
    not fit into the limit beside it."""
    cdef int64_t t_start = now_us()
    cdef size_t n_state = slots.table.state_size(slots.ctx, slot.id, 0)
    cdef size_t n = staging_bytes(n_state, slot.n_tokens)
    cdef int has_buffer = (n_state > 0 and cache_has_staging_room(cache, n, n + chain_head_bytes(slot.n_tokens))
                           and staging_take(&cache.staging, n) != NULL)
    cache_spent(cache, t_start)
    return n_state if has_buffer else 0


cdef CacheEntry *_save_cut(Cache *cache, const Slots *slots, const Slot *slot, const Segment *part) noexcept nogil:
    """Save this part of the state in the buffer, for this engine alone. Return its entry, or NULL."""
    cdef size_t n_head = HEAD + <size_t>part.end * sizeof(int32_t)
    cdef int64_t n_state = chain_cut(cache, part, NULL, 0)
    cdef int32_t row = -1, has_moved = _has_ends_to_move(cache, part)
    cdef uint32_t kind = LLAMAD_CACHE_STATE
    if n_state > 0:
        row = _take_row(cache, slots, slot, part, n_head + <size_t>n_state)
    if row < 0:
        return NULL
    chain_cut(cache, part, cache.memory.places[row].data + n_head, <size_t>n_state)
    if cache.needs_ends:
        kind = LLAMAD_CACHE_END if part.is_end else LLAMAD_CACHE_PART
    _add(cache, slots, slot, row, kind, part.end, <size_t>n_state)
    if part.before >= 0:
        chain_link(cache, cache.n_entries - 1, part.before)
    if has_moved:
        chain_replace(cache, part.replaced, cache.n_entries - 1)
        entries_drop(cache, cache.by_row[part.replaced])
    chain_use(cache, cache.by_row[row])
    if part.is_end:
        cache_drop_superseded(cache, slots, slot)
    return &cache.entries[cache.by_row[row]]


cdef int _save_next_cut(Cache *cache, Slots *slots, const Slot *slot, uint64_t *id) noexcept nogil:
    """Save the next part of the slot's state. Return whether that was possible; then id becomes that of the last entry
    that the slot has now, or 0 if there is no room."""
    cdef int64_t t_start = now_us()
    cdef int32_t is_read = 0
    cdef size_t n_state
    cdef const CacheEntry *entry = NULL
    cdef Segment part
    chain_plan(cache, slot, &part)
    if chain_is_saved(&part):
        id[0] = cache.entries[chain_saved(cache, slot)].id
        return 1
    if not staging_has(&cache.staging, slot):
        n_state = _make_buffer(cache, slots, slot)
        t_start = now_us()  # a buffer is allocated now and then, so it is no cost of saving
        if n_state == 0 or not staging_read(&cache.staging, slot, n_state):
            return 0
        is_read = 1
    chain_plan(cache, slot, &part)  # again, because entries may have been dropped for the buffer
    if chain_cut(cache, &part, NULL, 0) < 0:
        return 0
    entry = _save_cut(cache, slots, slot, &part)
    id[0] = entry.id if entry != NULL else 0
    if entry != NULL:
        _publish(cache, entry)
    else:
        entries_drop_rest(cache, part.before)
    if entry == NULL or chain_saved(cache, slot) >= 0:
        staging_rest(&cache.staging)
    if is_read and entry != NULL:
        _learn(cache, t_start, slot.n_tokens)  # the other parts are copied from the buffer, which is much faster
    cache_spent(cache, t_start)
    return 1


# --- for other modules ----------------------------------------------------------------------------------------------

cdef uint64_t cache_save_next(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Save the slot's state, or its next part, if there is room for it beside pinned and held entries. Return the id of
    the last entry that the slot has now, or 0. Nothing may be pending for the slot."""
    cdef const CacheEntry *entry
    cdef Segment part
    cdef uint64_t id = 0
    if slot.n_tokens < CACHE_TOKENS_MIN:
        return 0
    if chain_can_cut(cache, slots, slot) and _save_next_cut(cache, slots, slot, &id):
        return id
    if chain_can_hold(cache, slots, slot):
        chain_plan(cache, slot, &part)
        if chain_is_saved(&part):
            return cache.entries[cache.by_row[part.before]].id
        entry = _save(cache, slots, slot, &part)
    else:
        entry = _save(cache, slots, slot, NULL)
    if entry == NULL:
        return 0
    _publish(cache, entry)
    id = entry.id
    if not chain_can_hold(cache, slots, slot):
        cache_drop_superseded(cache, slots, slot)
    return id


cdef int cache_has_all(const Cache *cache, uint64_t id, const Slot *slot) noexcept nogil:
    """Return whether the entry, which begins with what the slot holds, can restore all of it."""
    cdef const CacheEntry *entry = entries_get(cache, id) if id else NULL
    return (entry != NULL and entry.n_tokens == slot.n_tokens
            and entry.kind != <uint32_t>LLAMAD_CACHE_PART)


cdef uint64_t cache_save(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Save all of the slot's state. Return the id of its last entry, or 0. Nothing may be pending for the slot."""
    cdef uint64_t id = cache_save_next(cache, slots, slot)
    while id and not cache_has_all(cache, id, slot):
        id = cache_save_next(cache, slots, slot)
    return id


cdef int32_t cache_unsaved(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return how many tokens would be copied to save the slot's state."""
    cdef Segment part
    if slot.n_tokens < CACHE_TOKENS_MIN or not chain_can_hold(cache, slots, slot):
        return slot.n_tokens
    chain_plan(cache, slot, &part)
    return slot.n_tokens - part.begin


cdef int32_t cache_next_unsaved(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return how many tokens cache_save_next() would copy."""
    cdef int32_t n
    if chain_can_hold(cache, slots, slot):
        return min(<int32_t>SEGMENT_TOKENS, cache_unsaved(cache, slots, slot))
    if not chain_can_cut(cache, slots, slot):
        return slot.n_tokens
    n = min(<int32_t>SEGMENT_TOKENS, slot.n_tokens)
    return n if staging_has(&cache.staging, slot) else slot.n_tokens + n


cdef uint64_t cache_hold(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Save the whole state of the slot to an entry that stays until cache_drop() or cache_release(). Return its id, or 0.
    Until then it is for this engine alone, because no other knows the task that needs it."""
    cdef CacheEntry *entry
    if slot.n_tokens < CACHE_TOKENS_MIN:
        return 0
    entry = _save(cache, slots, slot, NULL)
    if entry == NULL:
        return 0
    entry.is_held = 1
    return entry.id


cdef void cache_release(Cache *cache, uint64_t id) noexcept nogil:
    """Stop holding the entry: it is one like any other from now on."""
    cdef int64_t i = entries_index(cache, id)
    if i >= 0:
        cache.entries[i].is_held = 0
        _publish(cache, &cache.entries[i])
