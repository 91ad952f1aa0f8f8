# Owns: how slots are saved to the prompt cache in host memory. Runs on the engine thread, between two steps. It decides
# nothing: prefix/sharing.pyx and prefix/parking.pyx say what is saved.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from llamad.base.system cimport now_us
from llamad.engine.cache.cache_entries cimport entries_add, entries_describe, entries_get, entries_index, entries_remove
from llamad.engine.cache.cache_types cimport Cache, CacheEntry, cache_spent
from llamad.engine.cache.chains cimport (
    Segment, chain_can_hold, chain_close, chain_link, chain_open, chain_plan, chain_use,
)
from llamad.engine.cache.host_cache cimport cache_drop_beginnings, cache_take_pages
from llamad.engine.costs.scheduler cimport CACHE_TOKENS_MIN, RARE_LEARN_RATE
from llamad.engine.kv.checkpoints cimport list_init, list_share
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.protocol.cache_memory cimport memory_drop, memory_publish

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


cdef int32_t _take_row(Cache *cache, const Slots *slots, const Slot *slot, const Segment *part, size_t n) noexcept nogil:
    """Return a row with pages for this part of the slot's state, of n bytes, or -1."""
    cdef int32_t row
    if part == NULL:
        return cache_take_pages(cache, n, cache_drop_beginnings(cache, slots, slot, n))
    cache.extended = part.before
    row = cache_take_pages(cache, n, _take_replaced(cache, part, n))
    cache.extended = -1
    return row


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
    cdef double cost
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
    memcpy(pages + HEAD, slot.tokens, n_head - HEAD)
    entries_describe(cache, row, n_end, n_head + n_state, &slot.adapters, slot.owner, slot.session, slot.retention_s)
    cache.memory.rows[row].n_returns = slot.n_returns
    entry = entries_add(cache, row)
    if part != NULL and part.before >= 0:
        chain_link(cache, cache.n_entries - 1, part.before)
    chain_use(cache, cache.n_entries - 1)
    if list_init(&entry.checkpoints, slot.checkpoints.n) == 0:
        list_share(cache.checkpoints, &entry.checkpoints, &slot.checkpoints)
    cache.n_saves += 1
    cost = <double>(now_us() - t_start) / (n_end - entry.begin)
    cache.save_token_us += RARE_LEARN_RATE * (cost - cache.save_token_us) if cache.save_token_us > 0 else cost
    cache_spent(cache, t_start)
    return entry


cdef void _publish(Cache *cache, const CacheEntry *entry) noexcept nogil:
    """Let others have the entry, too, unless it has rows of media, whose numbers only this engine knows."""
    cdef int32_t i
    for i in range(entry.n_tokens):
        if entry.tokens[i] < 0:
            return
    memory_publish(cache.memory, entry.row)


cdef uint64_t cache_save_next(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Save the slot's state, or its next part, if there is room for it beside pinned and held entries. Return the id of
    the last entry that the slot has now, or 0. Nothing may be pending for the slot."""
    cdef const CacheEntry *entry
    cdef Segment part
    if slot.n_tokens < CACHE_TOKENS_MIN:
        return 0
    if chain_can_hold(cache, slots, slot):
        chain_plan(cache, slot, &part)
        if part.begin == part.end:
            return cache.entries[cache.by_row[part.before]].id
        entry = _save(cache, slots, slot, &part)
    else:
        entry = _save(cache, slots, slot, NULL)
    if entry == NULL:
        return 0
    _publish(cache, entry)
    return entry.id


cdef uint64_t cache_save(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Save all of the slot's state. Return the id of its last entry, or 0. Nothing may be pending for the slot."""
    cdef uint64_t id = cache_save_next(cache, slots, slot)
    while id and entries_get(cache, id).n_tokens < slot.n_tokens:
        id = cache_save_next(cache, slots, slot)
    return id


cdef int32_t cache_unsaved(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return how many tokens would be copied to save the slot's state."""
    cdef Segment part
    if slot.n_tokens < CACHE_TOKENS_MIN or not chain_can_hold(cache, slots, slot):
        return slot.n_tokens
    chain_plan(cache, slot, &part)
    return slot.n_tokens - part.begin


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
