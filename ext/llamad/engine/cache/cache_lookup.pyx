# Owns: how entries of the prompt cache are found by their tokens. Runs on the engine thread. Changes nothing.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from llamad.base.system cimport load_int
from llamad.engine.cache.cache_types cimport Cache, CacheEntry
from llamad.engine.costs.scheduler cimport CACHE_TOKENS_MIN
from llamad.engine.kv.checkpoints cimport list_reaches
from llamad.engine.kv.device_copies cimport copies_has
from llamad.engine.kv.slots cimport Slot, Slots, common_prefix
from llamad.engine.kv.task_queue cimport Task
from llamad.protocol.adapter_span cimport AdapterSpan, span_common
from llamad.protocol.cache_memory cimport LLAMAD_CACHE_BAD, LLAMAD_CACHE_PART
from llamad.protocol.row_ids cimport run_floor

cdef enum:
    HASHED = CACHE_TOKENS_MIN // 2


cdef int _is_whole(const Slots *slots, const CacheEntry *entry) noexcept nogil:
    """Return whether the entry can be used only with all of its tokens. A sliding window's state has only the
    window."""
    return not slots.can_share or (slots.n_swa > 0 and entry.n_tokens > slots.n_swa)


cdef int32_t _usable(const Slots *slots, const CacheEntry *entry, int32_t n) noexcept nogil:
    """Return how many of its first n tokens the entry can restore."""
    return n if n == entry.n_tokens or not _is_whole(slots, entry) else list_reaches(&entry.checkpoints, n)


cdef uint64_t cache_hash(const int32_t *tokens) noexcept nogil:
    cdef uint64_t hash = 14695981039346656037ull
    cdef int32_t i
    for i in range(HASHED):
        hash = (hash ^ <uint64_t>tokens[i]) * 1099511628211ull
    return hash


cdef inline int _is_bad(const Cache *cache, const CacheEntry *entry) noexcept nogil:
    """Return whether the entry's bytes, which another engine wrote, were found to be wrong."""
    return load_int(&cache.memory.places[entry.row].trust) == LLAMAD_CACHE_BAD


cdef int32_t cache_shares(const Cache *cache, const CacheEntry *entry, uint64_t hash, const AdapterSpan *adapters,
                          uint64_t owner, const int32_t *tokens, int32_t n) noexcept nogil:
    """Return the length of the prefix that the entry shares with these tokens, computed with the same adapters; 0 if it
    belongs to another owner."""
    cdef int32_t n_same
    if entry.first_hash != hash or _is_bad(cache, entry):
        return 0
    if entry.owner != 0 and entry.owner != owner:
        return 0
    n_same = span_common(&entry.adapters, adapters, min(n, entry.n_tokens))
    return run_floor(tokens, common_prefix(entry.tokens, tokens, n_same), n)


cdef inline int _is_in_others(const Cache *cache, const CacheEntry *entry) noexcept nogil:
    """Return whether other entries begin with all tokens of this one, so that only they need to be compared. If any was
    found damaged, all are. A part cannot be used without an end, and what has an end can be used by itself."""
    if entry.kind == <uint32_t>LLAMAD_CACHE_PART or cache.needs_ends:
        return entry.kind == <uint32_t>LLAMAD_CACHE_PART
    return entry.n_behind > 0 and load_int(&cache.memory.n_bad) == 0


cdef uint64_t _first_enough(const Cache *cache, uint64_t id, int32_t n) noexcept nogil:
    """Return the first entry of its chain that has n tokens."""
    cdef int64_t i = 0
    while cache.entries[i].id != id:
        i += 1
    while cache.entries[i].begin >= n:
        i = cache.by_row[cache.entries[i].before]
    return cache.entries[i].id


cdef int32_t cache_find(const Cache *cache, const Slots *slots, const Task *task, uint64_t *id) noexcept nogil:
    """Return how many tokens of prefill the best entry saves the task, and set its id; 0 if there is none. Among equal
    ones it is one with a copy on the devices. The prompt's last token is always computed."""
    cdef const CacheEntry *entry
    cdef int32_t n, n_best = 0, n_prompt = task.command.n_prompt - 1
    cdef uint64_t hash
    cdef int64_t i
    if cache.n_entries == 0 or n_prompt < CACHE_TOKENS_MIN or not task.command.options.cache_prompt:
        return 0
    hash = cache_hash(task.prompt)
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        if _is_in_others(cache, entry):
            continue
        n = cache_shares(cache, entry, hash, &task.command.adapters, task.command.owner, task.prompt, n_prompt)
        n = _usable(slots, entry, n)
        if n > n_best or (n == n_best > 0 and copies_has(&cache.copies, entry.id)):
            n_best = n
            id[0] = entry.id
    if n_best > 0 and not cache.needs_ends:
        id[0] = _first_enough(cache, id[0], n_best)
    return n_best


cdef int32_t cache_holds(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil:
    """Return how many of the slot's tokens an entry could restore."""
    cdef const CacheEntry *entry
    cdef int32_t n, n_best = 0
    cdef uint64_t hash
    cdef int64_t i
    if cache.n_entries == 0 or slot.n_tokens < CACHE_TOKENS_MIN:
        return 0
    hash = cache_hash(slot.tokens)
    for i in range(cache.n_entries):
        entry = &cache.entries[i]
        if _is_in_others(cache, entry):
            continue
        n = cache_shares(cache, entry, hash, &slot.adapters, slot.owner, slot.tokens, slot.n_tokens)
        n_best = max(n_best, _usable(slots, entry, n))
    return n_best


cdef int32_t cache_common(const Cache *cache, const Task *task) noexcept nogil:
    """Return how many of the prompt's tokens some entry begins with, whether or not it can restore them."""
    cdef int32_t n_best = 0
    cdef uint64_t hash
    cdef int64_t i
    if cache.n_entries == 0 or task.command.n_prompt < CACHE_TOKENS_MIN:
        return 0
    hash = cache_hash(task.prompt)
    for i in range(cache.n_entries):
        n_best = max(n_best, cache_shares(cache, &cache.entries[i], hash, &task.command.adapters, task.command.owner,
                                          task.prompt, task.command.n_prompt))
    return n_best
