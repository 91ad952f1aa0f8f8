# Owns: the choice of the slot that serves a task, of idle prefixes that make room, and of the prompt cache's entry that
# is dropped next. Runs on the engine thread. Changes nothing. What a prefix is worth is in protocol/prompt_value.pyx.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from llamad.base.system cimport now_us
from llamad.engine.cache.cache_types cimport ARRIVALS_MAX, Cache, CacheEntry
from llamad.engine.costs.scheduler cimport ARRIVAL_US, NEIGHBOUR_LOSS, VALUED_TOKENS_MIN
from llamad.engine.kv.slots cimport SLOT_IDLE, Slot, Slots, common_prefix, slot_common_held
from llamad.engine.kv.task_queue cimport Task
from llamad.protocol.cache_memory cimport LLAMAD_CACHE_END, LLAMAD_CACHE_PART, llamad_cache_row
from llamad.protocol.prompt_value cimport HintShares, PromptUse, prompt_value, shares_add, shares_allow

cdef double ARRIVING = 1e30  # more than any prompt is worth


# --- slots --------------------------------------------------------------------------------------------------------

cdef int _can_take(const Slot *slot) noexcept nogil:
    return slot.state == SLOT_IDLE and not slot.is_awaited


cdef void _share(const Slots *slots, HintShares *shares) noexcept nogil:
    cdef const Slot *slot
    cdef int32_t i
    shares.n = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.n_tokens:
            shares_add(shares, slot.owner, slot.session != 0 or slot.retention_s > 0)


cdef double _loss(const Slots *slots, const Slot *slot, int32_t n_keep, const HintShares *shares,
                  int64_t now) noexcept nogil:
    """Return what is lost if an idle slot keeps only its first n_keep tokens. The age alone decides among few tokens. What
    is parked is not lost."""
    cdef PromptUse use
    memset(&use, 0, sizeof(PromptUse))
    use.n_end = max(slot.n_tokens, <int32_t>VALUED_TOKENS_MIN)
    use.n_tokens = max(slot.n_tokens - n_keep, <int32_t>VALUED_TOKENS_MIN)
    use.idle_s = <double>(now - slot.t_used_us) / 1e6
    if slot.n_tokens >= VALUED_TOKENS_MIN:
        use.n_returns = slot.n_returns
        if shares_allow(shares, slot.owner, slots.n):
            use.retention_s = slot.retention_s
            use.is_named = slot.session != 0
    return prompt_value(&use)


cdef int32_t _n_neighbours(const Slots *slots, int32_t i) noexcept nogil:
    """Return how many of the two adjacent slots are busy; 0 in a unified cache, where it does not matter."""
    if slots.n_cells:
        return 0
    return ((i > 0 and slots.items[i - 1].state != SLOT_IDLE)
            + (i + 1 < slots.n and slots.items[i + 1].state != SLOT_IDLE))


cdef Slot *_cheapest(Slots *slots) noexcept nogil:
    """Return the idle slot whose prefix is worth least, or NULL. Never-used slots come first, then the lowest. Neighbours
    of busy slots come before others that are worth about as little, because together they are one graph."""
    cdef Slot *slot
    cdef Slot *cheapest = NULL
    cdef HintShares shares
    cdef int64_t now = now_us()
    cdef double loss, loss_min = -1.0, loss_best = 0.0
    cdef int32_t i, n, n_beside = 0
    _share(slots, &shares)
    for i in range(slots.n):
        if _can_take(&slots.items[i]):
            loss = _loss(slots, &slots.items[i], 0, &shares, now)
            loss_min = loss if loss_min < 0 else min(loss_min, loss)
    for i in range(slots.n):
        slot = &slots.items[i]
        if not _can_take(slot):
            continue
        loss = _loss(slots, slot, 0, &shares, now)
        if slot.n_tokens >= VALUED_TOKENS_MIN and loss > NEIGHBOUR_LOSS * loss_min:
            continue
        n = _n_neighbours(slots, i)
        if cheapest == NULL or n > n_beside or (n == n_beside and loss < loss_best):
            cheapest = slot
            n_beside = n
            loss_best = loss
    return cheapest


cdef Slot *slots_choose(Slots *slots, const Task *task) noexcept nogil:
    """Return the idle slot in which this task should run, or NULL.

    A slot that holds enough of the prompt wins, unless similarity_min is 0, which turns that off. Otherwise it is the
    slot whose prefix is worth least. The slot that served the task's session last wins if it holds no less of the
    prompt, so that a conversation that was cut replaces its own old text, and not another's."""
    cdef Slot *slot
    cdef Slot *best = NULL
    cdef Slot *own = NULL
    cdef Slot *cheapest
    cdef int32_t i, n, n_best = 0, n_own = -1, n_cheapest = 0, is_own
    if task.command.options.id_slot >= 0:
        slot = &slots.items[task.command.options.id_slot]
        return slot if _can_take(slot) else NULL
    cheapest = _cheapest(slots)
    for i in range(slots.n):
        slot = &slots.items[i]
        if not _can_take(slot):
            continue
        n = slot_common_held(slot, task, slot.n_tokens + slot.n_parked)  # parked tokens return to their slot
        n_cheapest = n if slot == cheapest else n_cheapest
        is_own = task.command.session != 0 and slot.session == task.command.session
        if is_own and n > n_own:
            own = slot
            n_own = n
        if n > n_best or (is_own and n == n_best and n > 0):
            n_best = n
            best = slot
    if best != NULL and slots.similarity_min > 0 and (
            <float>n_best >= slots.similarity_min * <float>task.command.n_prompt):
        return best
    return own if own != NULL and n_own >= n_cheapest else cheapest


cdef Slot *slots_cheaper(Slots *slots, const Slot *forked, int32_t n_keep, int32_t n_gain) noexcept nogil:
    """Return the idle slot that loses least if it takes over the first n_keep tokens of the slot `forked`, of which it
    must lack n_gain; NULL if that is no less than what `forked` would lose if it kept only these. What both slots hold
    is not lost with one of them."""
    cdef Slot *cheapest = NULL
    cdef Slot *slot
    cdef HintShares shares
    cdef int64_t now = now_us()
    cdef double loss, loss_least
    cdef int32_t i, n
    _share(slots, &shares)
    loss_least = _loss(slots, forked, n_keep, &shares, now)
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot == forked or not _can_take(slot):
            continue
        n = common_prefix(slot.tokens, forked.tokens, min(slot.n_tokens, n_keep))
        if n < n_keep < n + n_gain:
            continue
        loss = _loss(slots, slot, n, &shares, now)
        if loss < loss_least:
            cheapest = slot
            loss_least = loss
    return cheapest


cdef Slot *slots_least_valuable(Slots *slots, const Slot *spared) noexcept nogil:
    """Return the idle slot whose prefix is worth least for each cell; NULL if none but `spared` has one."""
    cdef Slot *least = NULL
    cdef Slot *slot
    cdef HintShares shares
    cdef int64_t now = now_us()
    cdef double loss, loss_least = 0.0
    cdef int32_t i
    _share(slots, &shares)
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot == spared or slot.state != SLOT_IDLE or slot.n_tokens == 0:
            continue
        loss = _loss(slots, slot, 0, &shares, now) / max(slot.n_tokens, <int32_t>VALUED_TOKENS_MIN)
        if least == NULL or loss < loss_least:
            least = slot
            loss_least = loss
    return least


# --- the prompt cache in host memory --------------------------------------------------------------------------------

cdef int cache_is_kept(const Cache *cache, int64_t i) noexcept nogil:
    """Return whether the entry is pinned, held, being extended or being restored in parts."""
    return (cache.entries[i].is_held or cache.entries[i].n_readers or cache.entries[i].id == cache.pinned
            or cache.entries[i].row == cache.extended)


cdef int _is_arriving(const Cache *cache, uint64_t id, int64_t now) noexcept nogil:
    """Return whether the entry is the last one of a prompt that is being inserted in parts."""
    cdef int32_t i
    for i in range(ARRIVALS_MAX):
        if cache.arrivals[i].id == id:
            return now - cache.arrivals[i].t_us < ARRIVAL_US
    return 0


cdef void _note_last_ends(const Cache *cache) noexcept nogil:
    """Note behind how many tokens the last end of each part is."""
    cdef int64_t i
    cdef CacheEntry *part
    for i in range(cache.n_entries):
        cache.entries[i].last_end = 0
    for i in range(cache.n_entries):
        if cache.entries[i].kind == <uint32_t>LLAMAD_CACHE_END and cache.entries[i].before >= 0:
            part = &cache.entries[cache.by_row[cache.entries[i].before]]
            part.last_end = max(part.last_end, cache.entries[i].n_tokens)


cdef void _value_end(const Cache *cache, const CacheEntry *end, PromptUse *use) noexcept nogil:
    """Note what is lost with an end: the parts that no other end needs, or the way back to an earlier place of a
    conversation."""
    cdef const CacheEntry *part = &cache.entries[cache.by_row[end.before]]
    use.is_superseded = part.n_behind > part.n_ends or part.last_end > end.n_tokens
    use.n_tokens = end.n_tokens - part.begin
    while part != NULL and part.n_behind == 1 and part.kind == <uint32_t>LLAMAD_CACHE_PART:
        use.n_tokens = end.n_tokens - part.begin
        use.n_bytes += <double>part.capacity
        part = &cache.entries[cache.by_row[part.before]] if part.before >= 0 else NULL


cdef int64_t cache_least_valuable(const Cache *cache) noexcept nogil:
    """Return the index of the entry that may be dropped and is worth least, or -1. It is none that others need. A prompt
    that is being inserted goes last."""
    cdef const llamad_cache_row *row
    cdef HintShares shares
    cdef PromptUse use
    cdef int64_t i, least = -1, now = now_us()
    cdef double value, value_least = 0.0
    shares.n = 0
    memset(&use, 0, sizeof(PromptUse))
    if cache.needs_ends:
        _note_last_ends(cache)
    for i in range(cache.n_entries):
        row = &cache.memory.rows[cache.entries[i].row]
        shares_add(&shares, row.owner, <double>row.capacity if row.session or row.retention_s > 0 else 0.0)
    for i in range(cache.n_entries):
        if cache_is_kept(cache, i) or cache.entries[i].n_behind:
            continue
        row = &cache.memory.rows[cache.entries[i].row]
        use.n_end = cache.entries[i].n_tokens
        use.n_tokens = cache.entries[i].n_tokens - cache.entries[i].begin
        use.n_bytes = <double>cache.entries[i].capacity
        use.is_superseded = 0
        if cache.entries[i].kind == <uint32_t>LLAMAD_CACHE_END and cache.entries[i].before >= 0:
            _value_end(cache, &cache.entries[i], &use)
        use.idle_s = <double>(now - <int64_t>row.used) / 1e6
        use.n_returns = row.n_returns
        use.retention_s = row.retention_s
        use.is_named = row.session != 0
        if not shares_allow(&shares, row.owner, <double>cache.bytes_max):
            use.retention_s = min(use.retention_s, 0)
            use.is_named = 0
        value = prompt_value(&use)
        if _is_arriving(cache, cache.entries[i].id, now):
            value += ARRIVING
        if least < 0 or value < value_least:
            least = i
            value_least = value
    return least
