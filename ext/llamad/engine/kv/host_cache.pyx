# Owns: the prompt cache in host memory, its limit and its order of eviction. Runs on the engine thread, between two
# steps. It decides nothing: prefix/sharing.pyx says what is worth saving or restoring.
#
# An entry is the whole state of a slot, with its tokens and its checkpoints. Owners (API keys) and adapters do not
# share entries. Kinds of memory that cannot be truncated (recurrent ones, sliding windows) use an entry if the prompt
# begins with all of its tokens, or as far as a checkpoint goes.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from llamad.base.system cimport now_us
from llamad.engine.costs.scheduler cimport CACHE_ENTRIES_MAX, CACHE_TOKENS_MIN, RARE_LEARN_RATE
from llamad.protocol.adapter_span cimport AdapterSpan, span_common
from llamad.engine.kv.device_copies cimport copies_free, copies_has, copies_make, copies_restore
from llamad.engine.kv.checkpoints cimport list_cut, list_free, list_init, list_reaches, list_share
from llamad.engine.kv.slots cimport Slot, Slots, common_prefix, slot_clear
from llamad.engine.kv.task_queue cimport Task
from llamad.protocol.blobs cimport pages_close, pages_open
from llamad.protocol.row_ids cimport ids_positions, run_floor

cdef enum:
    PAGE = 4096
    HASHED = CACHE_TOKENS_MIN // 2


cdef int cache_init(Cache *cache, size_t bytes_max, Checkpoints *checkpoints, const llamad_table *table,
                    void *ctx) noexcept nogil:
    """Return 0, or -1 if memory ran out. The memory of states is allocated when they are saved."""
    memset(cache, 0, sizeof(Cache))
    cache.checkpoints = checkpoints
    cache.table = table
    cache.ctx = ctx
    if bytes_max == 0:
        return 0
    cache.entries = <CacheEntry *>calloc(CACHE_ENTRIES_MAX, sizeof(CacheEntry))
    if cache.entries == NULL:
        return -1
    cache.bytes_max = bytes_max
    return 0


cdef void cache_free(Cache *cache) noexcept nogil:
    while cache.n_entries:
        _drop(cache, cache.n_entries - 1)
    free(cache.entries)
    copies_free(&cache.copies)
    cache.entries = NULL
    cache.bytes_max = 0


cdef int _is_whole(const Slots *slots, const CacheEntry *entry) noexcept nogil:
    """Return whether the entry can be used only with all of its tokens. A sliding window's state has only the
    window."""
    return not slots.can_share or (slots.n_swa > 0 and entry.n_tokens > slots.n_swa)


cdef int32_t _usable(const Slots *slots, const CacheEntry *entry, int32_t n) noexcept nogil:
    """Return how many of its first n tokens the entry can restore."""
    return n if n == entry.n_tokens or not _is_whole(slots, entry) else list_reaches(&entry.checkpoints, n)


cdef uint64_t _hash(const int32_t *tokens) noexcept nogil:
    cdef uint64_t hash = 14695981039346656037ull
    cdef int32_t i
    for i in range(HASHED):
        hash = (hash ^ <uint64_t>tokens[i]) * 1099511628211ull
    return hash


cdef int32_t _common(const CacheEntry *entry, uint64_t hash, const AdapterSpan *adapters, uint64_t owner,
                     const int32_t *tokens, int32_t n) noexcept nogil:
    """Return the length of the prefix that the entry shares with these tokens, computed with the same adapters; 0 if it
    belongs to another owner."""
    cdef int32_t n_same
    if entry.first_hash != hash:
        return 0
    if entry.owner != 0 and entry.owner != owner:
        return 0
    n_same = span_common(&entry.adapters, adapters, min(n, entry.n_tokens))
    return run_floor(tokens, common_prefix(<const int32_t *>entry.pages, tokens, n_same), n)


cdef int32_t cache_find(const Cache *cache, const Slots *slots, const Task *task, uint64_t *id) noexcept nogil:
    """Return how many tokens of prefill the best entry saves the task, and set its id; 0 if there is none. Among equal
    ones it is one with a copy on the devices. The prompt's last token is always computed."""
    cdef const CacheEntry *entry
    cdef int32_t n, n_best = 0, n_prompt = task.command.n_prompt - 1
    cdef uint64_t hash
    cdef int64_t i
    if cache.n_entries == 0 or n_prompt < CACHE_TOKENS_MIN or not task.command.options.cache_prompt:
        return 0
    hash = _hash(task.prompt)
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        n = _common(entry, hash, &task.command.adapters, task.command.owner, task.prompt, n_prompt)
        n = _usable(slots, entry, n)
        if n > n_best or (n == n_best > 0 and copies_has(&cache.copies, entry.id)):
            n_best = n
            id[0] = entry.id
    return n_best


cdef int32_t cache_holds(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return how many of the slot's tokens an entry could restore."""
    cdef const CacheEntry *entry
    cdef int32_t n, n_best = 0
    cdef uint64_t hash
    cdef int64_t i
    if cache.n_entries == 0 or slot.n_tokens < CACHE_TOKENS_MIN:
        return 0
    hash = _hash(slot.tokens)
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        n = _common(entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens)
        n_best = max(n_best, _usable(slots, entry, n))
    return n_best


cdef int32_t cache_common(const Cache *cache, const Task *task) noexcept nogil:
    """Return how many of the prompt's tokens some entry begins with, whether or not it can restore them."""
    cdef int32_t n_best = 0
    cdef uint64_t hash
    cdef int64_t i
    if cache.n_entries == 0 or task.command.n_prompt < CACHE_TOKENS_MIN:
        return 0
    hash = _hash(task.prompt)
    for i in range(cache.n_entries):
        n_best = max(n_best, _common(&cache.entries[i], hash, &task.command.adapters, task.command.owner,
                                     task.prompt, task.command.n_prompt))
    return n_best


cdef int64_t _index(const Cache *cache, uint64_t id) noexcept nogil:
    cdef int64_t i
    for i in range(cache.n_entries):
        if cache.entries[i].id == id:
            return i
    return -1


cdef const CacheEntry *cache_entry(const Cache *cache, uint64_t id) noexcept nogil:
    """Return the entry, or NULL if it has been dropped. The pointer is valid until the cache changes."""
    cdef int64_t i = _index(cache, id)
    return NULL if i < 0 else &cache.entries[i]


cdef void _remove(Cache *cache, int64_t i) noexcept nogil:
    """Remove an entry from the list. The caller owns its pages then."""
    if cache.entries[i].is_locked > 0:
        cache.table.unlock_pages(cache.ctx, cache.entries[i].pages)
    list_free(cache.checkpoints, &cache.entries[i].checkpoints)
    cache.n_bytes -= cache.entries[i].capacity
    cache.n_entries -= 1
    cache.entries[i] = cache.entries[cache.n_entries]


cdef void _drop(Cache *cache, int64_t i) noexcept nogil:
    cdef uint8_t *pages = cache.entries[i].pages
    cdef size_t capacity = cache.entries[i].capacity
    _remove(cache, i)
    pages_close(pages, capacity)


cdef int _is_kept(const Cache *cache, int64_t i) noexcept nogil:
    """Return whether the entry is pinned or held."""
    return cache.entries[i].is_held or cache.entries[i].id == cache.pinned


cdef size_t _kept_bytes(const Cache *cache) noexcept nogil:
    cdef int64_t i
    cdef size_t n = 0
    for i in range(cache.n_entries):
        if _is_kept(cache, i):
            n += cache.entries[i].capacity
    return n


cdef int64_t _oldest(const Cache *cache) noexcept nogil:
    """Return the index of the longest unused entry that may be dropped, or -1."""
    cdef int64_t i, oldest = -1
    for i in range(cache.n_entries):
        if not _is_kept(cache, i) and (oldest < 0 or cache.entries[i].used < cache.entries[oldest].used):
            oldest = i
    return oldest


cdef void _drop_beginnings(Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Drop the entries that the slot's state can replace."""
    cdef CacheEntry *entry
    cdef uint64_t hash = _hash(slot.tokens)
    cdef int64_t i = 0
    cdef int can_cut = slots.can_share and slots.n_swa == 0
    if not can_cut and slot.checkpoints.n == 0:
        return
    while i < cache.n_entries:
        entry = &cache.entries[i]
        if not _is_kept(cache, i) and entry.owner == slot.owner and entry.n_tokens == _common(
                entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens) and (
                can_cut or list_reaches(&slot.checkpoints, entry.n_tokens) + CACHE_TOKENS_MIN > entry.n_tokens):
            _drop(cache, i)
        else:
            i += 1


cdef int cache_drop_checkpoints(Cache *cache) noexcept nogil:
    """Drop the checkpoints of the longest unused entry that has any. Return whether there was one."""
    cdef int64_t i, oldest = -1
    for i in range(cache.n_entries):
        if cache.entries[i].checkpoints.n and (oldest < 0 or cache.entries[i].used < cache.entries[oldest].used):
            oldest = i
    if oldest < 0:
        return 0
    list_cut(cache.checkpoints, &cache.entries[oldest].checkpoints, 0)
    return 1


cdef int cache_drop_oldest(Cache *cache) noexcept nogil:
    """Drop the longest unused entry to make room for a checkpoint. Return whether there was one."""
    cdef int64_t i = _oldest(cache)
    if i < 0:
        return 0
    cache.n_dropped += 1
    _drop(cache, i)
    return 1


cdef int _is_too_much(const Cache *cache, size_t n) noexcept nogil:
    return cache.n_entries == CACHE_ENTRIES_MAX or cache.n_bytes + cache.checkpoints.n_bytes + n > cache.bytes_max


cdef uint8_t *_take_pages(Cache *cache, size_t n, size_t *capacity) noexcept nogil:
    """Return pages for n bytes within the limit, or NULL. The longest unused entries are evicted for them. The pages of
    one of those are reused if they fit, because new pages are slower to write to."""
    cdef uint8_t *pages = NULL
    cdef CacheEntry *entry
    cdef int64_t i
    capacity[0] = (n + PAGE - 1) // PAGE * PAGE
    if capacity[0] + _kept_bytes(cache) > cache.bytes_max:
        return NULL
    while _is_too_much(cache, capacity[0]):
        i = _oldest(cache)
        if i < 0:
            break
        entry = &cache.entries[i]
        cache.n_dropped += 1
        if pages == NULL and capacity[0] <= entry.capacity <= capacity[0] + capacity[0] // 4:
            pages = entry.pages
            capacity[0] = entry.capacity
            _remove(cache, i)
        else:
            _drop(cache, i)
    if _is_too_much(cache, capacity[0]):
        if pages != NULL:
            pages_close(pages, capacity[0])
        return NULL
    return pages if pages != NULL else pages_open(capacity[0])


cdef void _spent(Cache *cache, int64_t t_start) noexcept nogil:
    cdef int64_t us = now_us() - t_start
    cache.turn_us += us
    cache.state_us += us
    cache.state_us_max = max(cache.state_us_max, us)


cdef uint64_t cache_save(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Save the slot's state, if there is room for it beside pinned and held entries. Return the entry's id, or 0.
    Nothing may be pending for the slot."""
    cdef int64_t t_start = now_us()
    cdef size_t n_tokens = <size_t>slot.n_tokens * sizeof(int32_t), capacity = 0
    cdef size_t n_state = slots.table.state_size(slots.ctx, slot.id, 0)
    cdef CacheEntry *entry
    cdef uint8_t *pages
    cdef double cost
    if n_state == 0 or slot.n_tokens < CACHE_TOKENS_MIN:
        return 0
    _drop_beginnings(cache, slots, slot)
    pages = _take_pages(cache, n_tokens + n_state, &capacity)
    if pages == NULL:
        return 0
    if slots.table.state_get(slots.ctx, slot.id, pages + n_tokens, n_state, 0) != n_state:
        pages_close(pages, capacity)
        return 0
    memcpy(pages, slot.tokens, n_tokens)
    entry = &cache.entries[cache.n_entries]
    if list_init(&entry.checkpoints, slot.checkpoints.n) == 0:
        list_share(cache.checkpoints, &entry.checkpoints, &slot.checkpoints)
    cache.last_id += 1
    cache.last_used += 1
    entry.id = cache.last_id
    entry.used = cache.last_used
    entry.adapters = slot.adapters
    entry.first_hash = _hash(slot.tokens)
    entry.owner = slot.owner
    entry.n_tokens = slot.n_tokens
    entry.is_held = entry.is_locked = 0
    entry.pages = pages
    entry.n_state = n_state
    entry.capacity = capacity
    cache.n_entries += 1
    cache.n_bytes += capacity
    cache.n_saves += 1
    cost = <double>(now_us() - t_start) / slot.n_tokens
    cache.save_token_us += RARE_LEARN_RATE * (cost - cache.save_token_us) if cache.save_token_us > 0 else cost
    _spent(cache, t_start)
    return entry.id


cdef uint64_t cache_hold(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil:
    """Save the slot's state to an entry that stays until cache_drop() or cache_release(). Return its id, or 0."""
    cdef uint64_t id = cache_save(cache, slots, slot)
    if id:
        cache.entries[_index(cache, id)].is_held = 1
    return id


cdef void cache_copy(Cache *cache, const Slots *slots, const Slot *slot, uint64_t id) noexcept nogil:
    """Keep the slot's state, which is the entry's, on the devices as well, if they have room. Nothing may be pending for
    the slot."""
    cdef int64_t t_start = now_us(), i = _index(cache, id)
    if i >= 0:
        copies_make(&cache.copies, slots, slot.id, id, cache.entries[i].n_state)
        _spent(cache, t_start)


cdef int cache_is_slow(const Cache *cache, uint64_t id) noexcept nogil:
    """Return whether a device would read the entry from pages that nobody has tried to lock."""
    cdef int64_t i = _index(cache, id)
    return i >= 0 and cache.entries[i].is_locked == 0 and not copies_has(&cache.copies, id)


cdef void cache_lock(Cache *cache, uint64_t id) noexcept nogil:
    """Lock the entry's pages, so that a device reads them faster. This is tried only once."""
    cdef int64_t i = _index(cache, id)
    cdef int64_t t_start = now_us()
    cdef CacheEntry *entry
    if i >= 0 and cache.entries[i].is_locked == 0:
        entry = &cache.entries[i]
        entry.is_locked = 1 if cache.table.lock_pages(cache.ctx, entry.pages, entry.capacity) else -1
        _spent(cache, t_start)


cdef void cache_release(Cache *cache, uint64_t id) noexcept nogil:
    """Stop holding the entry: it may be evicted like any other from now on."""
    cdef int64_t i = _index(cache, id)
    if i >= 0:
        cache.entries[i].is_held = 0


cdef void cache_drop(Cache *cache, uint64_t id) noexcept nogil:
    cdef int64_t i = _index(cache, id)
    if i >= 0:
        _drop(cache, i)


cdef int cache_restore(Cache *cache, Slots *slots, Slot *slot, uint64_t id) noexcept nogil:
    """Make the slot hold what the entry holds; the entry stays. Return 0, or -1; then the slot is empty and the entry
    is gone. Nothing at all may be pending."""
    cdef int64_t t_start = now_us(), i = _index(cache, id)
    cdef CacheEntry *entry
    cdef size_t n_tokens
    if i < 0:
        slot_clear(slots, slot)
        return -1
    entry = &cache.entries[i]
    n_tokens = <size_t>entry.n_tokens * sizeof(int32_t)
    slot_clear(slots, slot)
    if not copies_restore(&cache.copies, slot.id, id) and slots.table.state_set(
            slots.ctx, slot.id, entry.pages + n_tokens, entry.n_state, 0) != entry.n_state:
        slots.table.seq_rm(slots.ctx, slot.id, -1, -1)
        _drop(cache, i)
        return -1
    memcpy(slot.tokens, entry.pages, n_tokens)
    slot.n_tokens = entry.n_tokens
    slot.n_pos = ids_positions(slot.tokens, slot.n_tokens) if slots.takes_rows else slot.n_tokens
    slot.adapters = entry.adapters
    slot.owner = entry.owner
    list_share(cache.checkpoints, &slot.checkpoints, &entry.checkpoints)
    cache.last_used += 1
    entry.used = cache.last_used
    _spent(cache, t_start)
    return 0
