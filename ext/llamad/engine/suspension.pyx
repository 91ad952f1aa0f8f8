# Owns: the suspension of running tasks, because the cache is full or because the context had to be rebuilt: which task
# is suspended, where its state is kept, and when it is resumed. Runs on the engine thread, between two steps.
#
# Admission does not reserve room for output. When the running tasks have outgrown the cache, the youngest is suspended:
# it keeps its slot, sampler, grammar and text, its state goes to the prompt cache in host memory, and its cells become
# free. A state that does not fit there is computed again from its tokens.
#
# Every task is finished eventually. Suspended tasks are resumed in the order of their age, and no task is admitted
# before them; the oldest is never suspended. A task that is paused, because its client does not read, is suspended
# before all others, and no task waits for it.
from libc.stdint cimport int32_t, uint64_t

from llamad.base.system cimport load_int
from llamad.engine.cache.cache_saves cimport cache_hold
from llamad.engine.cache.host_cache cimport cache_drop, cache_restore
from llamad.engine.events cimport finish_done
from llamad.engine.kv.cells cimport cells_fit_running, cells_spare, cells_wanted
from llamad.engine.kv.slots cimport (
    SLOT_DECODING, SLOT_PREFILLING, SLOT_SUSPENDED, STOPS_MAX, Slot, Slots, slot_clear, slot_drop_partial, slot_is_pending,
)
from llamad.engine.prefix.restoring cimport restoring_end
from llamad.engine.prefix.sharing cimport prefix_make_room
from llamad.engine.state.engine_state cimport State
from llamad.engine.state.flush cimport flush_pending
from llamad.protocol.messages cimport STOP_LIMIT


# --- suspending -------------------------------------------------------------------------------------------------

cdef int suspension_yields(const Slot *slot, const Slot *other) noexcept nogil:
    """Return whether the slot's task is suspended before the other's."""
    if slot.task.is_paused != other.task.is_paused:
        return slot.task.is_paused
    return slot.task.command.id > other.task.command.id


cdef Slot *suspension_choose(Slots *slots) noexcept nogil:
    """Return the task to suspend, or NULL if fewer than two run, because one alone always has room."""
    cdef Slot *slot
    cdef Slot *chosen = NULL
    cdef int32_t i, n = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state == SLOT_PREFILLING or slot.state == SLOT_DECODING:
            n += 1
            if chosen == NULL or suspension_yields(slot, chosen):
                chosen = slot
    return chosen if n > 1 else NULL


cdef uint64_t _save(State *state, Slot *slot) noexcept nogil:
    """Save the slot's state; return its entry in the prompt cache, or 0 if it was not saved."""
    if state.cache.bytes_max == 0 or state.slots.group_n > 1:
        return 0  # grouped positions cannot be restored
    if slot_is_pending(&state.slots, slot) and flush_pending(state, slot) < 0:
        return 0
    return cache_hold(&state.cache, &state.slots, slot)


cdef void _hold(State *state, Slot *slot, int32_t n_held, uint64_t entry) noexcept nogil:
    """Suspend the task with n_held tokens in this entry of the prompt cache; 0: they are computed again."""
    restoring_end(state, slot)
    slot_clear(&state.slots, slot)
    slot.n_held = n_held
    slot.held_entry = entry
    slot.held_state = slot.state
    slot.state = SLOT_SUSPENDED
    state.slots.n_suspended += 1
    state.stats.n_suspensions += 1


cdef void suspension_suspend(State *state, Slot *slot) noexcept nogil:
    """Suspend a running task and free its cells."""
    slot_drop_partial(&state.slots, slot)
    _hold(state, slot, slot.n_tokens, _save(state, slot))


cdef void suspension_suspend_all(State *state) noexcept nogil:
    """Suspend all running tasks without saving them, to be computed again. The context is about to be rebuilt, and its
    contents cannot be trusted."""
    cdef Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING or slot.state == SLOT_DECODING:
            _hold(state, slot, slot.n_tokens - slot.n_partial, 0)


# --- resuming ---------------------------------------------------------------------------------------------------

cdef Slot *_oldest(Slots *slots) noexcept nogil:
    """Return the suspended task that is resumed next, or NULL."""
    cdef Slot *slot
    cdef Slot *oldest = NULL
    cdef int32_t i
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state == SLOT_SUSPENDED and not slot.task.is_paused:
            if oldest == NULL or slot.task.command.id < oldest.task.command.id:
                oldest = slot
    return oldest


cdef Slot *_paused(Slots *slots) noexcept nogil:
    """Return a running task whose client does not read, or NULL."""
    cdef Slot *slot
    cdef int32_t i
    for i in range(slots.n):
        slot = &slots.items[i]
        if (slot.state == SLOT_PREFILLING or slot.state == SLOT_DECODING) and slot.task.is_paused:
            return slot
    return NULL


cdef int suspension_is_waiting(const Slots *slots) noexcept nogil:
    """Return whether a suspended task waits for room."""
    return slots.n_suspended > 0 and _oldest(<Slots *>slots) != NULL


cdef int _can_resume(const State *state, const Slot *slot) noexcept nogil:
    """Return whether there is room for what the task held or must prefill, and for some steps of all running tasks."""
    cdef int32_t n_own = slot.n_prefill if slot.held_state == SLOT_PREFILLING else slot.n_held + 1
    if load_int(&slot.deferral):
        return 0  # wait for its token first
    if cells_wanted(&state.slots) == 0:
        return 1
    if state.is_refused and state.n_released == state.refused_at:
        return 0  # llama.cpp had no room for the running tasks
    return cells_fit_running(&state.slots, n_own + cells_spare(&state.slots), n_own)


cdef int _restore(State *state, Slot *slot) noexcept nogil:
    """Restore the slot's sequence and drop the cache entry. Return whether the sequence is what it was before."""
    cdef int is_restored = 0
    if slot.held_entry == 0:
        return slot.n_held == 0
    if flush_pending(state, slot) == 0 and prefix_make_room(state, slot, slot.n_held):
        is_restored = cache_restore(&state.cache, &state.slots, slot, slot.held_entry) == 0
    cache_drop(&state.cache, slot.held_entry)
    slot.held_entry = 0
    return is_restored


cdef void _compute_again(State *state, Slot *slot) noexcept nogil:
    """Make the empty slot prefill what it held. If it was decoding, its next token is decoded after that (replay.pyx), so
    that a full context is shifted before, as it would have been."""
    cdef int32_t i
    state.stats.n_recomputed += <uint64_t>slot.n_held
    slot.n_begun = slot.n_looked = 0
    if slot.held_state == SLOT_DECODING:
        slot.prefill = slot.tokens
        slot.n_prefill = slot.n_held
        for i in range(STOPS_MAX):
            slot.stops[i] = 0
    slot.state = SLOT_PREFILLING


cdef void suspension_recompute(State *state, Slot *slot) noexcept nogil:
    """Compute a running slot's sequence again, because cells are missing. Its own cells give enough room."""
    slot.n_held = slot.n_tokens
    slot.held_state = slot.state
    slot_clear(&state.slots, slot)
    _compute_again(state, slot)
    slot.n_held = 0


cdef void _resume(State *state, Slot *slot) noexcept nogil:
    if slot.held_state == SLOT_DECODING and slot.n_held >= state.slots.n_ctx:
        slot.truncated = 1
        finish_done(state, slot, STOP_LIMIT, -1)  # no room for its next token
        return
    if _restore(state, slot):
        slot.state = slot.held_state
    else:
        _compute_again(state, slot)
    slot.n_held = 0
    state.slots.n_suspended -= 1


cdef void suspension_run(State *state) noexcept nogil:
    """Resume the oldest suspended task if there is room, if necessary by suspending paused ones. Call before new tasks
    are admitted. Only one is resumed per turn, because restoring a state takes time."""
    cdef Slot *slot
    cdef Slot *paused
    if state.slots.n_suspended == 0:
        return
    slot = _oldest(&state.slots)
    while slot != NULL and not _can_resume(state, slot):
        paused = _paused(&state.slots)
        if paused == NULL or load_int(&slot.deferral):
            return
        suspension_suspend(state, paused)
    if slot != NULL:
        _resume(state, slot)
