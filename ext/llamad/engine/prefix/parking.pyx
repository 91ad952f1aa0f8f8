# Owns: idle prefixes that are saved to host memory, and wait there while other slots run. Runs on the engine thread,
# between two steps.
#
# Every prefix is saved once the engine is idle, because the memory of the prompt cache outlives it: a conversation goes
# on after a crash, or after the model slept or was unloaded.
#
# In a unified cache llama.cpp computes attention over all cells up to the last one in use, so the prefixes of idle
# slots make every other slot slower (H200, 1B: three conversations of 8,000 tokens cost a fifth of one stream's speed).
# So before a task takes cells, idle prefixes leave theirs. They are parked: the slot keeps its list of tokens, and its
# state is an entry of the prompt cache, from which the next task of the conversation, or an action on the slot,
# restores it.
#
# Saving a state takes as long as some hundred tokens. It is done while the engine is idle or, if there was no time for
# that, before a task that runs alone. The state is also copied within the devices if they have room, so that the
# conversation is restored in a millisecond. If not, its pages are locked while the engine is idle, which makes the way
# back many times as fast. Flash attention on a CPU skips cells of other sequences, so nothing is parked there. New pages
# are slow to write to, so another thread allocates them before a state is saved while the engine is idle, and beside a
# device also while that computes a prompt.
#
# While other slots run, prefixes of idle ones are saved, too, so that a finished turn is safe although its neighbours go
# on: part by part, where a state can be saved in parts (chains.pyx), or as a whole if that takes no longer than a gap. The
# same holds for their copies on the device.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.system cimport now_us
from llamad.engine.cache.cache_entries cimport entries_get
from llamad.engine.cache.cache_lookup cimport cache_holds
from llamad.engine.cache.cache_saves cimport cache_next_unsaved, cache_save, cache_save_next
from llamad.engine.cache.chains cimport chain_can_cut, chain_can_hold
from llamad.engine.cache.host_cache cimport (
    cache_copy, cache_copy_us, cache_is_slow, cache_lock, cache_part_bytes, cache_prepare_save, cache_restore,
    cache_stock,
)
from llamad.engine.cache.spare_pages cimport spare_is_awaited
from llamad.engine.cache.staging cimport staging_expire, staging_timeout_ms
from llamad.engine.costs.scheduler cimport (
    CACHE_TOKENS_MIN, KEEP_IDLE_US, KEEP_LAST_US, KEEP_LOOK_US, KEEP_PART, PARK_IDLE_US, PARK_TOKENS_MIN, SEGMENT_TOKENS,
    STATES_US_MAX,
)
from llamad.engine.kv.slots cimport SLOT_IDLE, Slot, Slots, slot_clear, slot_is_pending
from llamad.engine.prefix.sharing cimport prefix_is_saved, prefix_make_room
from llamad.engine.state.engine_state cimport State
from llamad.engine.state.flush cimport flush_pending
from llamad.protocol.cache_memory cimport memory_sign

cdef enum:
    BYTES_PER_US = 1000      # assumed of saving before anything was saved


cdef int _saves(const State *state) noexcept nogil:
    """Return whether idle prefixes are saved."""
    return state.cache.bytes_max > 0 and not state.cache.drops_idle and state.slots.group_n == 1


cdef int _parks(const State *state) noexcept nogil:
    """Return whether idle prefixes also leave their cells."""
    return _saves(state) and state.slots.n_cells > 0 and state.plan.has_device


cdef int _is_candidate(const State *state, const Slot *slot) noexcept nogil:
    return slot.state == SLOT_IDLE and not slot.is_awaited and slot.n_tokens >= (
        PARK_TOKENS_MIN if state.plan.has_device else CACHE_TOKENS_MIN)


cdef int _may_copy(const State *state, const Slot *slot, int is_beside) noexcept nogil:
    """Return whether the saved prefix may be copied on the device: beside other slots only if that takes no longer than a
    save may."""
    return _parks(state) and prefix_is_saved(state, slot) and (
        not is_beside or 0 < cache_copy_us(&state.cache, slot.host_entry) <= _longest_us(state))


cdef int _save(State *state, Slot *slot, int all_parts, int is_beside) noexcept nogil:
    """Save the slot's state, or only its next part; return whether the prompt cache has all of it now. If there is no
    room, it is not tried again."""
    if slot.is_unsaved:
        return 0
    if not slot_is_pending(&state.slots, slot) or flush_pending(state, slot) == 0:
        if all_parts:
            slot.host_entry = cache_save(&state.cache, &state.slots, slot)
        else:
            slot.host_entry = cache_save_next(&state.cache, &state.slots, slot)
        if _may_copy(state, slot, is_beside):
            cache_copy(&state.cache, &state.slots, slot, slot.host_entry)
    slot.is_unsaved = slot.host_entry == 0
    slot.was_saved |= prefix_is_saved(state, slot)
    return prefix_is_saved(state, slot)


cdef void _park(State *state, Slot *slot) noexcept nogil:
    cdef int32_t n = slot.n_tokens
    cdef uint64_t entry = slot.host_entry
    slot_clear(&state.slots, slot)
    state.slots.n_evicted -= <uint64_t>n  # the tokens are not lost
    slot.n_parked = n
    slot.host_entry = entry


cdef void parking_run(State *state, const Slot *spared) noexcept nogil:
    """Park the idle prefixes of other slots before the task in the slot `spared` is prefilled. Prefixes that are not
    saved yet stay if other tasks would have to wait for that, or this one for pages."""
    cdef Slot *slot
    cdef int32_t i, is_alone = 1
    if not _parks(state):
        return
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        is_alone = is_alone and (slot.state == SLOT_IDLE or slot == spared)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot != spared and _is_candidate(state, slot) and (prefix_is_saved(state, slot) or is_alone and (
                cache_prepare_save(&state.cache, &state.slots, slot) and _save(state, slot, 1, 0))):
            _park(state, slot)


cdef void parking_stock(State *state, const Slot *slot) noexcept nogil:
    """Have pages prepared for what will be saved of the slot, while a device computes its prompt. A CPU has no time to
    spare then."""
    cdef size_t n
    if state.plan.has_device and _saves(state) and (
            chain_can_hold(&state.cache, &state.slots, slot) or chain_can_cut(&state.cache, &state.slots, slot)):
        n = cache_part_bytes(&state.cache, slot.n_prefill, SEGMENT_TOKENS)
        cache_stock(&state.cache, n, (slot.n_prefill - slot.n_tokens) // SEGMENT_TOKENS)


# --- while the engine is idle -----------------------------------------------------------------------------------

cdef int _is_unsaved(const State *state, const Slot *slot) noexcept nogil:
    """Return whether the slot has a prefix that should be saved. To park it, the slot needs an entry of its own. What the
    cache has dropped since is not saved again: prefixes that do not all fit would push each other out for ever."""
    if not _is_candidate(state, slot) or slot.is_unsaved or slot.was_saved or prefix_is_saved(state, slot):
        return 0
    return _parks(state) or cache_holds(&state.cache, &state.slots, slot) < slot.n_tokens


cdef Slot *_next(const State *state, int64_t *t_idle_us) noexcept nogil:
    """Return the slot whose prefix is saved next, or whose pages are locked next, or NULL. t_idle_us becomes the time
    since when all slots are idle."""
    cdef Slot *slot
    cdef Slot *chosen = NULL
    cdef int32_t i
    t_idle_us[0] = 0
    if not _saves(state) or state.queue.first != NULL:
        return NULL
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state != SLOT_IDLE:
            return NULL
        t_idle_us[0] = max(t_idle_us[0], slot.t_used_us)
        if _is_slow(state, slot) or _is_unsaved(state, slot):
            chosen = slot
    return chosen


cdef int _is_slow(const State *state, const Slot *slot) noexcept nogil:
    """Return whether a device would read the slot's entry from pages that nobody has tried to lock."""
    return _parks(state) and cache_is_slow(&state.cache, slot.host_entry)


cdef int64_t _wait_us(const State *state) noexcept nogil:
    """Return how long all slots must have been idle before a prefix is saved."""
    return PARK_IDLE_US if _parks(state) else KEEP_IDLE_US


cdef int parking_save_next(State *state, int64_t now) noexcept nogil:
    """Save one prefix or a part of it, or lock its pages, if all slots have been idle for long enough. Return whether it
    did; not if it waits for pages."""
    cdef int64_t t_idle_us = 0
    cdef Slot *slot = _next(state, &t_idle_us)
    staging_expire(&state.cache.staging, now)
    if slot == NULL or now - t_idle_us < _wait_us(state):
        return 0
    if _is_slow(state, slot):
        cache_lock(&state.cache, slot.host_entry)
    elif not cache_prepare_save(&state.cache, &state.slots, slot):
        return 0
    else:
        _save(state, slot, 0, 0)
    return 1


# --- while other slots run --------------------------------------------------------------------------------------

cdef double _longest_us(const State *state) noexcept nogil:
    """Return how long a save may take while other slots run."""
    return max(<double>STATES_US_MAX, state.plan.decode_step_us)


cdef double _save_us(const State *state, const Slot *slot) noexcept nogil:
    """Return how long saving the slot's state, or its next part, will take."""
    cdef const Slots *slots = &state.slots
    if state.cache.save_token_us == 0 and not chain_can_hold(&state.cache, slots, slot):
        return <double>slots.table.state_size(slots.ctx, slot.id, 0) / BYTES_PER_US
    return state.cache.save_token_us * cache_next_unsaved(&state.cache, slots, slot)


cdef int parking_may_save(State *state, int64_t step_us) noexcept nogil:
    """Note how long a step took. Return whether an idle prefix may be saved now."""
    state.keep_credit_us = min(_longest_us(state), state.keep_credit_us + <double>step_us / KEEP_PART)
    return (_saves(state) and state.queue.first == NULL
            and state.keep_credit_us >= max(<double>KEEP_LOOK_US, state.keep_needed_us))


cdef Slot *_longest_idle(const State *state, int64_t now) noexcept nogil:
    """Return the slot that has been idle for longest, of those whose prefixes can be saved while others run, or NULL."""
    cdef Slot *slot
    cdef Slot *chosen = NULL
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if (slot.state == SLOT_IDLE and now - slot.t_used_us >= KEEP_IDLE_US
                and (chosen == NULL or slot.t_used_us < chosen.t_used_us)
                and not slot_is_pending(&state.slots, slot) and _is_unsaved(state, slot)
                and _save_us(state, slot) <= _longest_us(state)):
            chosen = slot
    return chosen


cdef void parking_save_beside(State *state) noexcept nogil:
    """Save an idle prefix, or a part of it, between two steps of other slots, if parking_may_save(), and if the time is
    enough."""
    cdef int64_t t_start = now_us()
    cdef Slot *slot = _longest_idle(state, t_start)
    staging_expire(&state.cache.staging, t_start)
    state.keep_needed_us = 0
    if slot != NULL:
        state.keep_needed_us = _save_us(state, slot)
        if state.keep_needed_us <= state.keep_credit_us and cache_prepare_save(&state.cache, &state.slots, slot):
            _save(state, slot, 0, 1)
            state.keep_needed_us = 0
    state.keep_credit_us -= <double>max(now_us() - t_start, <int64_t>KEEP_LOOK_US)


cdef void parking_save_last(State *state) noexcept nogil:
    """Save what no entry has yet, because this engine ends; but only for a moment."""
    cdef int64_t t_end = now_us() + KEEP_LAST_US
    cdef Slot *slot
    cdef int32_t i
    if _saves(state):
        for i in range(state.slots.n):
            slot = &state.slots.items[i]
            if now_us() < t_end and _is_unsaved(state, slot):
                _save(state, slot, 1, 1)
    while now_us() < t_end and memory_sign(state.cache.memory):
        pass


cdef int parking_timeout_ms(const State *state, int64_t now) noexcept nogil:
    """Return the time until the next save, or until the buffer for saving is freed, in milliseconds; -1 if there is
    neither. The thread that allocates pages wakes this one when they are there."""
    cdef int64_t t_idle_us = 0
    if _next(state, &t_idle_us) == NULL or spare_is_awaited(&state.cache):
        return staging_timeout_ms(&state.cache.staging, now)
    return <int>max(<int64_t>0, (t_idle_us + _wait_us(state) - now) // 1000 + 1)


# --- restoring --------------------------------------------------------------------------------------------------

cdef void parking_return(State *state, Slot *slot) noexcept nogil:
    """Restore what the idle slot has parked, for an action. If the prompt cache has lost it, the slot is empty."""
    cdef uint64_t entry = slot.host_entry, session = slot.session
    cdef int32_t n = slot.n_parked
    if n == 0:
        return
    if flush_pending(state, slot) == 0 and entries_get(&state.cache, entry) != NULL and (
            prefix_make_room(state, slot, n)):
        cache_restore(&state.cache, &state.slots, slot, entry)
        slot.session = session
    slot.n_parked = 0
    slot.host_entry = entry if slot.n_tokens else 0
