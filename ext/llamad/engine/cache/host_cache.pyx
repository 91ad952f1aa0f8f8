# Owns: the prompt cache in host memory. Runs on the engine thread, between two steps. It decides nothing:
# prefix/sharing.pyx says what is worth saving or restoring, and eviction.pyx what is dropped first. cache_room.pyx keeps
# the limit, and cache_saves.pyx makes entries of slots.
#
# An entry is the state of a slot, with its tokens and its checkpoints: the whole, or the part or the end that the entries
# before it lack (chains.pyx). It lies in a memory that outlives the engine (protocol/cache_memory.h): the next engine of
# the model adopts it (adoption.pyx). Only held entries, and those with media, are for this engine alone. Owners (API
# keys) and adapters do not share entries. Kinds of memory that cannot be truncated (recurrent ones, sliding windows) use
# an entry if the prompt begins with all of its tokens, or as far as a checkpoint goes.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from llamad.base.system cimport load_int, now_us
from llamad.engine.cache.cache_entries cimport (
    entries_add, entries_describe, entries_drop, entries_drop_chain, entries_index, entries_remove,
)
from llamad.engine.cache.cache_lookup cimport cache_hash, cache_shares
from llamad.engine.cache.cache_room cimport (
    cache_has_staging_room, cache_is_full, cache_make_room, cache_take_pages,
)
from llamad.engine.cache.cache_types cimport (
    ARRIVALS_MAX, SPARE_READY, Cache, CacheEntry, Spare, cache_rounded, cache_spent,
)
from llamad.engine.cache.chains cimport (
    Segment, chain_bytes, chain_can_cut, chain_can_hold, chain_end_bytes, chain_ending, chain_is_joined, chain_is_saved,
    chain_link, chain_lock, chain_plan, chain_restore, chain_return, chain_unlocked, chain_use,
)
from llamad.engine.cache.eviction cimport cache_is_kept, cache_least_valuable
from llamad.engine.cache.spare_pages cimport (
    spare_ask, spare_count, spare_drop_copy, spare_drop_one, spare_has_place, spare_is_awaited, spare_is_ready,
    spare_make_place, spare_of_blob, spare_take_blob, spare_unlock_all,
)
from llamad.engine.cache.staging cimport staging_free, staging_init
from llamad.engine.costs.scheduler cimport CACHE_ENTRIES_MAX, CACHE_TOKENS_MIN, ENDS_MAX, RARE_LEARN_RATE, STOCK_PART
from llamad.engine.kv.checkpoints cimport list_cut, list_free, list_reaches, list_share
from llamad.engine.kv.device_copies cimport copies_free, copies_has, copies_make, copies_restore
from llamad.engine.kv.slots cimport Slot, Slots, slot_clear
from llamad.protocol.cache_memory cimport (
    LLAMAD_CACHE_PART, LLAMAD_CACHE_ROWS, LLAMAD_CACHE_STATE, llamad_cache, memory_drop, memory_publish, memory_renew,
)
from llamad.protocol.messages cimport RESULT_DONE, RESULT_FAILED, RESULT_NO_ROOM, ActionCommand
from llamad.protocol.row_ids cimport ids_positions
from llamad.ses1.ses1 cimport piece_bytes

cdef enum:
    HEAD = 8                 # of SES1


cdef int cache_init(Cache *cache, size_t bytes_max, Checkpoints *checkpoints, const llamad_table *table,
                    void *ctx, llamad_cache *memory, int has_device) noexcept nogil:
    """Return 0, or -1 if memory ran out. The memory of states is allocated when they are saved."""
    memset(cache, 0, sizeof(Cache))
    cache.memory = cache.trust.memory = memory
    checkpoints.trust = &cache.trust
    cache.checkpoints = checkpoints
    cache.table = table
    cache.ctx = ctx
    cache.spare_seq = cache.extended = cache.inserted = -1
    cache.has_device = has_device
    cache.return_rate = 1.0
    staging_init(&cache.staging, table, ctx, has_device)
    if bytes_max == 0:
        return 0
    cache.entries = <CacheEntry *>calloc(CACHE_ENTRIES_MAX, sizeof(CacheEntry))
    cache.by_row = <int32_t *>calloc(LLAMAD_CACHE_ROWS, sizeof(int32_t))
    if cache.entries == NULL or cache.by_row == NULL:
        return -1
    cache.bytes_max = bytes_max
    return 0


cdef void cache_free(Cache *cache) noexcept nogil:
    """Forget all entries. Those that are complete stay in the memory for the next engine."""
    cdef int64_t i
    for i in range(cache.n_entries):
        if cache.entries[i].is_locked > 0:
            cache.table.unlock_pages(cache.ctx, cache.entries[i].pages)
        list_free(cache.checkpoints, &cache.entries[i].checkpoints)
    spare_unlock_all(cache)
    cache.n_entries = 0
    free(cache.entries)
    free(cache.by_row)
    copies_free(&cache.copies)
    staging_free(&cache.staging)
    cache.entries = NULL
    cache.by_row = NULL
    cache.bytes_max = 0


cdef uint64_t _used(const Cache *cache, int64_t i) noexcept nogil:
    return cache.memory.rows[cache.entries[i].row].used


cdef int _is_replaced(const Cache *cache, const Slots *slots, int64_t i, uint64_t hash, const Slot *slot) noexcept nogil:
    """Return whether the slot's state can replace the entry."""
    cdef const CacheEntry *entry = &cache.entries[i]
    cdef int can_cut = slots.can_share and slots.n_swa == 0
    if cache_is_kept(cache, i) or entry.n_behind or entry.owner != slot.owner or entry.n_tokens > slot.n_tokens:
        return 0
    if entry.kind != <uint32_t>LLAMAD_CACHE_STATE:
        return 0
    if not can_cut and list_reaches(&slot.checkpoints, entry.n_tokens) + CACHE_TOKENS_MIN <= entry.n_tokens and (
            entry.n_tokens < slot.n_tokens):
        return 0
    return entry.n_tokens == cache_shares(cache, entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens)


cdef int32_t cache_drop_beginnings(Cache *cache, const Slots *slots, const Slot *slot, size_t n) noexcept nogil:
    """Drop the entries that the slot's state of n bytes can replace. Return the row of one in which it could be written,
    for the caller to take, or -1."""
    cdef uint64_t hash = cache_hash(slot.tokens)
    cdef int64_t i = 0
    cdef int32_t row = -1
    while i < cache.n_entries:
        if not _is_replaced(cache, slots, i, hash, slot):
            i += 1
        elif row < 0 and n <= cache.memory.rows[cache.entries[i].row].span:
            row = entries_remove(cache, i)
        else:
            entries_drop(cache, i)
    return row


cdef int _is_superseded(const Cache *cache, int64_t i, uint64_t hash, const Slot *slot) noexcept nogil:
    """Return whether the slot has gone on from where the entry's state ends."""
    cdef const CacheEntry *entry = &cache.entries[i]
    if cache_is_kept(cache, i) or entry.n_behind or entry.kind == <uint32_t>LLAMAD_CACHE_PART or (
            entry.owner != slot.owner or entry.n_tokens >= slot.n_tokens):
        return 0
    return entry.n_tokens == cache_shares(cache, entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens)


cdef void cache_drop_superseded(Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Let at most ENDS_MAX ends of states stay of the conversation that the slot holds, whose last one was saved: those
    that were used last. What is purely recurrent is an end."""
    cdef uint64_t hash = cache_hash(slot.tokens)
    cdef int64_t i, oldest = 0
    cdef int32_t n = ENDS_MAX
    if not cache.needs_ends and slots.can_share:
        return
    while n >= ENDS_MAX and oldest >= 0:
        n = 0
        oldest = -1
        for i in range(cache.n_entries):
            if _is_superseded(cache, i, hash, slot):
                n += 1
                if oldest < 0 or _used(cache, i) < _used(cache, oldest):
                    oldest = i
        if n >= ENDS_MAX:
            entries_drop(cache, oldest)


cdef int cache_drop_checkpoints(Cache *cache) noexcept nogil:
    """Drop the checkpoints of the longest unused entry that has any. Return whether there was one."""
    cdef int64_t i, oldest = -1
    for i in range(cache.n_entries):
        if cache.entries[i].checkpoints.n and (oldest < 0 or _used(cache, i) < _used(cache, oldest)):
            oldest = i
    if oldest < 0:
        return 0
    list_cut(cache.checkpoints, &cache.entries[oldest].checkpoints, 0)
    return 1


cdef int cache_drop_least(Cache *cache) noexcept nogil:
    """Drop spare pages, the buffer for whole states or the least valuable entry to make room for a checkpoint. Return
    whether there were any."""
    cdef int64_t i
    if spare_drop_one(cache):
        return 1
    if cache.staging.data != NULL:
        staging_free(&cache.staging)
        return 1
    i = cache_least_valuable(cache)
    if i < 0:
        return 0
    cache.n_dropped += 1
    entries_drop(cache, i)
    return 1


cdef int _ask(Cache *cache, size_t n, uint64_t blob) noexcept nogil:
    """Let another thread prepare pages for n bytes, and copy the blob into them, unless it is 0. Return whether it will;
    not if it has too much to do, or if they do not fit into the limit."""
    cdef int32_t row = -1
    if not spare_has_place(cache):
        return 0
    if cache_make_room(cache, cache_rounded(n), &row):
        return spare_ask(cache, row, n, blob)
    if row >= 0:
        memory_drop(cache.memory, row)
    return 0


cdef int _prepare(Cache *cache, size_t n) noexcept nogil:
    """Return whether n bytes can be taken without allocating many pages. If not, another thread allocates them and wakes
    this one, which then calls it again. If they do not fit into the limit, this is 1, and taking them will fail."""
    if not load_int(&cache.memory.is_tended) or spare_is_ready(cache, n):
        return 1
    return not spare_count(cache, n) and not _ask(cache, n, 0)


cdef int cache_prepare_insert(Cache *cache, const ActionCommand *command, int is_first) noexcept nogil:
    """The same for a state that is inserted. The other thread also copies it, because half a gigabyte would keep the
    streams waiting. The first state of those that wait may take the room of later ones."""
    cdef const Spare *spare = spare_of_blob(cache, command.blob)
    cdef int is_asked
    if not load_int(&cache.memory.is_tended) or command.n_bytes == 0:
        return 1
    if spare != NULL:
        return load_int(&spare.state) == SPARE_READY
    cache.extended = cache.inserted if command.n_begin else -1  # it may be the entry with the cells before these
    is_asked = _ask(cache, command.n_bytes, command.blob)
    while not is_asked and is_first and spare_drop_copy(cache):
        is_asked = _ask(cache, command.n_bytes, command.blob)
    cache.extended = -1
    return not is_asked and is_first and not spare_is_awaited(cache)


cdef void cache_stock(Cache *cache, size_t n, int32_t n_entries) noexcept nogil:
    """Let another thread prepare pages for so many entries of n bytes, as far as nothing is evicted for that. Pages that
    fit are not given back for others, which would be asked for again at once."""
    while (load_int(&cache.memory.is_tended) and spare_count(cache, n) < n_entries and spare_make_place(cache, n)
           and not cache_is_full(cache, cache_rounded(n)) and cache.n_spare + n <= cache.bytes_max // STOCK_PART):
        if not spare_ask(cache, -1, n, 0):
            break


cdef size_t cache_part_bytes(const Cache *cache, int32_t n_end, int32_t n_cells) noexcept nogil:
    """Return the size of an entry with the cells of the last n_cells of n_end tokens."""
    return HEAD + <size_t>n_end * sizeof(int32_t) + piece_bytes(cache.trust.layout, n_cells)


cdef int cache_prepare_save(Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """The same for what is saved next of the slot, which may also be written in the place of an entry that it
    replaces."""
    cdef size_t n
    cdef uint64_t hash
    cdef int64_t i
    cdef Segment part
    cdef int is_prepared
    if slot.n_tokens < CACHE_TOKENS_MIN:
        return 1
    if chain_can_hold(cache, slots, slot) or chain_can_cut(cache, slots, slot):
        chain_plan(cache, slot, &part)
        if chain_is_saved(&part):
            return 1
        n = chain_end_bytes(slots, slot) if part.is_end else cache_part_bytes(cache, part.end, part.end - part.begin)
        if part.replaced >= 0 and n <= cache.memory.rows[part.replaced].span and (
                cache.entries[cache.by_row[part.replaced]].n_ends == 0):
            return 1
        cache.extended = part.before
        is_prepared = _prepare(cache, n)
        cache.extended = -1
        return is_prepared
    n = HEAD + <size_t>slot.n_tokens * sizeof(int32_t) + slots.table.state_size(slots.ctx, slot.id, 0)
    hash = cache_hash(slot.tokens)
    for i in range(cache.n_entries):
        if n <= cache.memory.rows[cache.entries[i].row].span and _is_replaced(cache, slots, i, hash, slot):
            return 1
    return _prepare(cache, n)


cdef int32_t _insert_pages(Cache *cache, const uint8_t *data, const ActionCommand *command,
                           int *is_locked) noexcept nogil:
    """Return a row with the bytes that are inserted, or -1. Those that another thread has copied were within the limit
    before, but there may be too many entries."""
    cdef int32_t other = 0, row = spare_take_blob(cache, command.blob, command.n_bytes, is_locked)
    if row < 0:
        row = cache_take_pages(cache, command.n_bytes, -1)
        if row >= 0:
            memcpy(cache.memory.places[row].data, data, command.n_bytes)
    elif cache_make_room(cache, cache.memory.rows[row].capacity, &other):
        memory_renew(cache.memory, row)  # the part before it may have come after these pages were asked for
    else:
        if is_locked[0]:
            cache.table.unlock_pages(cache.ctx, cache.memory.places[row].data)
        memory_drop(cache.memory, row)
        row = -1
    return row


cdef void _note_arrival(Cache *cache, uint64_t before, uint64_t id) noexcept nogil:
    """Note that other parts are likely to come behind this entry, which has come behind the entry `before` (0: none). Until
    then nothing needs it, so that what else is saved or inserted would push it out."""
    cdef int32_t i, chosen = 0
    for i in range(ARRIVALS_MAX):
        if before and cache.arrivals[i].id == before:
            chosen = i
            break
        if cache.arrivals[i].t_us < cache.arrivals[chosen].t_us:
            chosen = i
    cache.arrivals[chosen].id = id
    cache.arrivals[chosen].t_us = now_us()


cdef int cache_insert(Cache *cache, const Slots *slots, const uint8_t *data,
                      const ActionCommand *command) noexcept nogil:
    """Make an entry of a state that was checked, or of a part of one, if the part before it is there. Return a result of
    the action."""
    cdef int64_t t_start = now_us(), before = -1
    cdef size_t n_head = HEAD + <size_t>max(command.n_tokens, 0) * sizeof(int32_t)
    cdef const int32_t *tokens = <const int32_t *>(data + HEAD)
    cdef CacheEntry *entry
    cdef int32_t row
    cdef int is_locked = 0
    if command.n_tokens > slots.n_ctx or command.n_bytes <= n_head or not 0 <= command.n_begin < command.n_tokens:
        return RESULT_FAILED
    if cache.bytes_max == 0 or command.n_tokens < CACHE_TOKENS_MIN:
        return RESULT_NO_ROOM
    before = chain_ending(cache, tokens, command.n_tokens, command.owner, &command.adapters)
    if before >= 0:  # it is there already, and others may come behind it
        chain_use(cache, before)
        cache.inserted = cache.entries[before].row
        _note_arrival(cache, 0, cache.entries[before].id)
        return RESULT_DONE
    if command.n_begin:
        before = chain_ending(cache, tokens, command.n_begin, command.owner, &command.adapters)
        if before < 0:
            return RESULT_FAILED
        cache.extended = cache.entries[before].row
    row = _insert_pages(cache, data, command, &is_locked)
    before = cache.by_row[cache.extended] if before >= 0 else -1  # entries were dropped, and others took their places
    cache.extended = -1
    if row < 0:
        return RESULT_NO_ROOM
    entries_describe(cache, row, LLAMAD_CACHE_STATE, command.n_tokens, command.n_bytes, &command.adapters, command.owner,
                     command.session, command.retention_s)
    entry = entries_add(cache, row)
    entry.is_locked = is_locked
    if before >= 0:
        chain_link(cache, cache.n_entries - 1, cache.entries[before].row)
        chain_use(cache, cache.n_entries - 1)
    memory_publish(cache.memory, row)
    cache.inserted = row
    _note_arrival(cache, cache.entries[before].id if before >= 0 else 0, entry.id)
    cache_spent(cache, t_start)
    return RESULT_DONE


cdef void cache_copy(Cache *cache, const Slots *slots, const Slot *slot, uint64_t id) noexcept nogil:
    """Keep the slot's state, which is the entry's, on the devices as well, if they have room. Nothing may be pending for
    the slot."""
    cdef int64_t t_start = now_us(), i = entries_index(cache, id)
    cdef double cost
    if i < 0:
        return
    copies_make(&cache.copies, slots, slot.id, id, chain_bytes(cache, i))
    if copies_has(&cache.copies, id):
        cost = <double>(now_us() - t_start) / chain_bytes(cache, i)
        cache.copy_byte_us += RARE_LEARN_RATE * (cost - cache.copy_byte_us) if cache.copy_byte_us > 0 else cost
    cache_spent(cache, t_start)


cdef double cache_copy_us(const Cache *cache, uint64_t id) noexcept nogil:
    """Return how long copying the entry's state on the devices will take; -1 if that is unknown."""
    cdef int64_t i = entries_index(cache, id)
    return cache.copy_byte_us * chain_bytes(cache, i) if i >= 0 and cache.copy_byte_us > 0 else -1.0


cdef int cache_is_slow(const Cache *cache, uint64_t id) noexcept nogil:
    """Return whether a device would read the entry from pages that nobody has tried to lock."""
    cdef int64_t i = entries_index(cache, id)
    return i >= 0 and chain_unlocked(cache, i) >= 0 and not copies_has(&cache.copies, id)


cdef void cache_lock(Cache *cache, uint64_t id) noexcept nogil:
    """Lock pages of the entry, so that a device reads them faster. This is tried only once for each."""
    cdef int64_t i = entries_index(cache, id)
    cdef int64_t t_start = now_us()
    i = chain_unlocked(cache, i) if i >= 0 else -1
    if i >= 0:
        chain_lock(cache, i)
        cache_spent(cache, t_start)


cdef void cache_drop(Cache *cache, uint64_t id) noexcept nogil:
    cdef int64_t i = entries_index(cache, id)
    if i >= 0:
        entries_drop(cache, i)


cdef int64_t _with_room(Cache *cache, uint64_t id) noexcept nogil:
    """Make room for the buffer in which the entry is joined, if it needs one. Return the entry's index. If the limit is
    too low by now, the buffer exceeds it for as long as it is used."""
    cdef uint64_t pinned = cache.pinned
    cdef int64_t i = entries_index(cache, id)
    if chain_is_joined(cache, i):
        cache.pinned = id
        cache_has_staging_room(cache, chain_bytes(cache, i), 0)
        cache.pinned = pinned
    return entries_index(cache, id)


cdef int cache_restore(Cache *cache, Slots *slots, Slot *slot, uint64_t id) noexcept nogil:
    """Make the slot hold what the entry holds; the entry stays. Return 0, or -1; then the slot is empty and the entry
    is gone. Nothing at all may be pending."""
    cdef int64_t t_start = now_us(), i = entries_index(cache, id), k
    cdef const CacheEntry *entry
    slot_clear(slots, slot)
    if i < 0:
        return -1
    if not copies_restore(&cache.copies, slot.id, id):
        i = _with_room(cache, id)
        k = chain_restore(cache, slot, i)
        if k >= 0:
            entries_drop_chain(cache, k)
            return -1
    entry = &cache.entries[i]
    memcpy(slot.tokens, entry.tokens, <size_t>entry.n_tokens * sizeof(int32_t))
    slot.n_tokens = entry.n_tokens
    slot.n_pos = ids_positions(slot.tokens, slot.n_tokens) if slots.takes_rows else slot.n_tokens
    slot.adapters = entry.adapters
    slot.owner = entry.owner
    slot.n_returns = chain_return(cache, i)
    list_share(cache.checkpoints, &slot.checkpoints, &entry.checkpoints)
    cache_spent(cache, t_start)
    return 0
