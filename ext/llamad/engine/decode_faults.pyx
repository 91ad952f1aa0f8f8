# Owns: the handling of failed decodes, so that they cost as few requests as possible. Runs on the engine thread, after
# the call that failed.
#
# No room: llama.cpp has changed nothing. Idle prefixes go to host memory, one for each retry, then the youngest task is
# suspended, then the batch becomes smaller. Only a task that does not fit alone fails.
#
# A batch that llama.cpp rejects (a wrong token or position): nothing has changed either. The tasks of the batch become
# suspects, which are decoded alone, and the one at fault fails.
#
# Everything else leaves a context that cannot be trusted. A new one is made, and all running tasks are computed again.
# The tasks of the batch are suspects here too: a task that fails twice and alone is given up.
from libc.stdint cimport int32_t

from llamad.base.system cimport load_int
from llamad.engine.events cimport finish_failed
from llamad.engine.kv.device_copies cimport copies_forget
from llamad.engine.kv.slots cimport (
    SLOT_DECODING, SLOT_PREFILLING, Slot, slot_advance, slot_clear, slots_forget,
)
from llamad.engine.prefix.sharing cimport prefix_evict_idle
from llamad.engine.state.engine_state cimport State
from llamad.engine.suspension cimport suspension_choose, suspension_suspend, suspension_suspend_all
from llamad.engine.threads.logits_arrival cimport arrival_forget
from llamad.protocol.messages cimport FAILURE_DECODE, FAILURE_LOST, FAILURE_ROOM

cdef enum:
    CODE_NO_ROOM = 1
    CODE_INVALID = -1
    FAULTS_MAX = 4           # a task in this many failed batches fails, alone or not


# --- suspects ---------------------------------------------------------------------------------------------------

cdef int _has_work(const Slot *slot) noexcept nogil:
    if slot.state == SLOT_PREFILLING:
        return slot.restored_entry == 0
    return slot.state == SLOT_DECODING and not slot.task.is_paused and not load_int(&slot.deferral)


cdef void faults_isolate(State *state) noexcept nogil:
    """While there is a suspect, make the other slots sit the step out. Call before a batch is planned."""
    cdef Slot *slot
    cdef const Slot *suspect = NULL
    cdef int32_t i
    if not state.has_faults:
        return
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if _has_work(slot) and not slot.sits_out and slot.task.is_suspect and suspect == NULL:
            suspect = slot
    if suspect != NULL:
        for i in range(state.slots.n):
            state.slots.items[i].sits_out |= &state.slots.items[i] != suspect


cdef void faults_passed(State *state) noexcept nogil:
    """Clear the tasks of a decoded step of suspicion, and allow a larger next step."""
    cdef Slot *slot
    cdef int32_t i, n_left = 0
    if not state.has_faults:
        return
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.task != NULL:
            if slot.n_planned or slot == state.plan.media_slot:
                slot.task.is_suspect = 0
            n_left += slot.task.is_suspect
    if state.plan.tokens_cap:
        state.plan.tokens_cap = 2 * state.plan.tokens_cap if 2 * state.plan.tokens_cap < state.plan.batch_max else 0
    state.has_faults = n_left > 0 or state.plan.tokens_cap > 0


cdef int _is_in(const State *state, const Slot *slot, int32_t first, int32_t end) noexcept nogil:
    """Return whether the slot's task has tokens in this range of the batch. A filler does not count."""
    cdef int32_t i
    if slot.task == NULL or slot.is_filler:
        return 0
    for i in range(first, end):
        if state.plan.seq_ids[i] == slot.id:
            return 1
    return 0


cdef int32_t _suspect(State *state, int32_t first, int32_t end) noexcept nogil:
    """Make the tasks with tokens in this range suspects. Return how many there are."""
    cdef Slot *slot
    cdef int32_t i, n = 0
    state.has_faults = 1
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if _is_in(state, slot, first, end):
            slot.task.is_suspect = 1
            slot.task.n_faults += 1
            n += 1
    return n


# --- no room ----------------------------------------------------------------------------------------------------

cdef void _make_room(State *state, int32_t n_tokens, int can_split) noexcept nogil:
    """Make room for a retry after llama.cpp had no room for n_tokens, or fail the only running task."""
    cdef Slot *slot
    cdef int32_t i
    state.stats.n_refused += 1
    if prefix_evict_idle(state, NULL) > 0:
        return
    slot = suspension_choose(&state.slots)
    if slot != NULL:
        state.is_refused = 1
        state.refused_at = state.n_released
        suspension_suspend(state, slot)
        return
    if n_tokens > 1 and can_split:
        state.plan.tokens_cap = n_tokens // 2
        state.has_faults = 1
        return
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING or slot.state == SLOT_DECODING:
            finish_failed(state, slot, FAILURE_ROOM, max(slot.n_tokens, slot.n_prefill))
            slot_clear(&state.slots, slot)


# --- a new context ----------------------------------------------------------------------------------------------

cdef void _give_up(State *state, int32_t code, int32_t n_suspects, int32_t first, int32_t end) noexcept nogil:
    """Fail the tasks that were in too many failed batches, or failed again alone."""
    cdef Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if _is_in(state, slot, first, end) and (
                slot.task.n_faults >= FAULTS_MAX or n_suspects == 1 and slot.task.n_faults > 1):
            finish_failed(state, slot, FAILURE_DECODE, code)


cdef void _rebuild(State *state) noexcept nogil:
    """Replace the context by a new one. If that fails (a lost device, no memory), only a new process can help, and this
    one ends."""
    suspension_suspend_all(state)
    if state.table.rebuild(state.ctx) != 0:
        state.is_lost = 1
        return
    state.has_adapters = 0
    slots_forget(&state.slots)
    copies_forget(&state.cache.copies)
    arrival_forget(&state.arrival)
    state.slots.is_pending = 0


# --- what failed ------------------------------------------------------------------------------------------------

cdef void faults_adapters(State *state, int32_t code) noexcept nogil:
    """Handle adapters that could not be set. One that the engine does not have costs only its own tasks."""
    cdef Slot *slot
    cdef int32_t i
    state.stats.n_decode_failures += 1
    if code != CODE_INVALID:
        _rebuild(state)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.task != NULL and not slot.sits_out and slot.task.command.n_adapters:
            finish_failed(state, slot, FAILURE_LOST, code)


cdef void faults_media(State *state, int32_t code) noexcept nogil:
    """Handle rows of a slot that could not be decoded: they are gone, or llama.cpp rejects them."""
    cdef Slot *slot = state.plan.media_slot
    if code == CODE_NO_ROOM:
        _make_room(state, state.plan.n_media, state.plan.can_split_media)
        return
    state.stats.n_decode_failures += 1
    slot.task.n_faults += 1
    if code == CODE_INVALID or slot.task.n_faults > 1:
        finish_failed(state, slot, FAILURE_LOST if code == CODE_INVALID else FAILURE_DECODE, code)
    if code != CODE_INVALID:
        _rebuild(state)


cdef void faults_decode(State *state, int32_t code, int32_t first, int32_t end) noexcept nogil:
    """Handle a range of the batch that could not be decoded; the tokens before it were."""
    cdef Slot *slot
    cdef int32_t i, n_suspects
    for i in range(state.slots.n if first else 0):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING and slot.n_planned:
            slot_advance(slot, min(slot.n_planned, slot.n_prefill - 1 - slot.n_tokens))
    if code == CODE_NO_ROOM:
        if state.plan.n_draft:
            state.drafts.is_refused = 1  # there may be room without drafts
        else:
            _make_room(state, end - first, 1)
        return
    state.stats.n_decode_failures += 1
    n_suspects = _suspect(state, first, end)
    if code == CODE_INVALID:
        for i in range(state.slots.n if n_suspects == 1 else 0):
            slot = &state.slots.items[i]
            if _is_in(state, slot, first, end):
                finish_failed(state, slot, FAILURE_DECODE, code)
                slot_clear(&state.slots, slot)
        return
    _give_up(state, code, n_suspects, first, end)
    _rebuild(state)
