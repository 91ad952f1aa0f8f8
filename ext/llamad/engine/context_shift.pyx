# Owns: what happens if a context is full: it is shifted, idle prefixes are evicted, or a task is suspended or ended.
# Runs on the engine thread, before each batch.
from libc.stdint cimport int32_t

from llamad.base.system cimport load_int
from llamad.engine.events cimport finish_done
from llamad.engine.kv.cells cimport cells_fit, cells_fit_running, cells_spare
from llamad.engine.kv.shared_cells cimport shared_with, shared_with_any
from llamad.engine.kv.slots cimport (
    SLOT_DECODING, SLOT_IDLE, SLOT_PREFILLING, Slot, slot_discard, slot_has_window, slot_regroup, slot_shift,
)
from llamad.engine.prefix.sharing cimport prefix_evict, prefix_evict_idle
from llamad.engine.state.engine_state cimport State
from llamad.engine.suspension cimport (
    suspension_choose, suspension_recompute, suspension_suspend, suspension_yields,
)
from llamad.protocol.messages cimport STOP_LIMIT, TASK_CONTEXT_SHIFT


cdef Slot *_youngest_sharer(State *state, const Slot *slot, int32_t n) noexcept nogil:
    """Return the slot with the youngest task of those that share this one's cells behind its first n tokens, or NULL. Idle
    ones give up what they hold."""
    cdef Slot *youngest = NULL
    cdef Slot *other
    cdef int32_t i
    for i in range(state.slots.n):
        other = &state.slots.items[i]
        if other == slot or shared_with(&state.slots.shared, slot.id, i) <= n:
            continue
        if other.state == SLOT_IDLE:
            prefix_evict(state, other)
        elif youngest == NULL or suspension_yields(other, youngest):
            youngest = other
    return youngest


cdef int _owns_cells(State *state, Slot *slot, int32_t n) noexcept nogil:
    """Make sure that no other slot has the slot's cells behind its first n tokens, because they have to move. Return 1, or
    0 if the slot is suspended for that: it gets cells of its own when it is resumed. That is done at once if there is
    room for them, and otherwise if the others that have the cells are older."""
    cdef Slot *youngest = _youngest_sharer(state, slot, n)
    cdef int32_t n_more = shared_with_any(&state.slots.shared, slot.id) + 1 + cells_spare(&state.slots)
    while youngest != NULL:
        if suspension_yields(slot, youngest) or cells_fit_running(&state.slots, n_more, slot.n_tokens):
            suspension_suspend(state, slot)
            return 0
        suspension_suspend(state, youngest)
        youngest = _youngest_sharer(state, slot, n)
    return 1


cdef void _make_room_in_slots(State *state) noexcept nogil:
    """Group positions, and shift a decoding slot's full context or end its task. A sliding window that lacks cells
    after the shift (usually one that was restored) cannot continue with a hole: the slot is computed again."""
    cdef Slot *slot
    cdef int32_t i, n_keep, n_discard, is_whole
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if load_int(&slot.deferral):
            continue  # wait for its token first
        if slot.state != SLOT_IDLE:
            slot_regroup(&state.slots, slot)
        if slot.state != SLOT_DECODING or slot.n_tokens + 1 < state.slots.n_ctx:
            continue
        n_keep = slot.task.command.n_asked if slot.task.command.n_keep < 0 else slot.task.command.n_keep
        # n_keep does not count BOS, which is kept too. llama-server also adds it to the length of the prompt.
        n_keep = max(0, min(min(n_keep, state.slots.n_ctx) + state.add_bos, state.slots.n_ctx - 4, slot.n_tokens - 2))
        n_discard = slot_discard(&state.slots, slot, n_keep) if slot.task.command.flags & TASK_CONTEXT_SHIFT else 0
        if n_discard > 0 and not _owns_cells(state, slot, n_keep + n_discard):
            continue
        is_whole = slot_has_window(&state.slots, slot, n_keep, n_discard)
        if n_discard > 0 and slot_shift(&state.slots, slot, n_keep, n_discard) == 0:
            slot.n_kept = n_keep
            slot.n_discarded += n_discard
            if not is_whole:
                suspension_recompute(state, slot)
            continue
        if slot.n_tokens >= state.slots.n_ctx:
            slot.truncated = 1
            finish_done(state, slot, STOP_LIMIT, -1)


cdef int32_t _demand(const State *state) noexcept nogil:
    """Return how many cells the next step can take at most."""
    cdef const Slot *slot
    cdef int32_t i, n = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_DECODING:
            n += 1
        elif slot.state == SLOT_PREFILLING:
            n += slot.n_prefill - slot.n_tokens
    return min(n, state.plan.batch_max)


cdef void _make_shared_room(State *state) noexcept nogil:
    """Make room in a unified cache: evict idle prefixes first, then suspend running tasks."""
    cdef Slot *slot
    while not cells_fit(&state.slots, _demand(state)):
        if prefix_evict_idle(state, NULL) > 0:
            continue
        slot = suspension_choose(&state.slots)
        if slot == NULL:
            return
        suspension_suspend(state, slot)


cdef void context_make_room(State *state) noexcept nogil:
    _make_room_in_slots(state)
    _make_shared_room(state)
