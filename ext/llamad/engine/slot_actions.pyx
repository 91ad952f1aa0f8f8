# Owns: the actions on slots. Runs on the engine thread, between two steps and before any task is admitted, so that a
# slot that becomes free goes first to the actions that waited for it. A busy slot is never touched: its action waits.
# Inserting a state into the prompt cache touches no slot.
#
# Nothing here looks into a state: a worker has checked it completely before it is restored (ses1/check.cpp).
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from llamad.base.system cimport now_us
from llamad.engine.cache.host_cache cimport cache_insert, cache_prepare_insert
from llamad.engine.cache.spare_pages cimport spare_forget
from llamad.engine.events cimport emit_action
from llamad.engine.kv.slots cimport SLOT_IDLE, Slot, may_use, slot_can_drop, slot_clear, slot_has_rows, slot_shift
from llamad.engine.prefix.parking cimport parking_return
from llamad.engine.prefix.sharing cimport prefix_make_room
from llamad.engine.state.engine_state cimport Action, State
from llamad.engine.state.flush cimport flush_pending
from llamad.protocol.blobs cimport blob_find, llamad_blob
from llamad.protocol.messages cimport (
    ACTION_ERASE, ACTION_INSERT, ACTION_LOOK, ACTION_RESTORE, ACTION_SAVE, ACTION_SHIFT, RESULT_ABORTED, RESULT_BUSY,
    RESULT_CANNOT, RESULT_DONE, RESULT_FAILED, RESULT_NOT_YOURS, RESULT_NO_ROOM, RESULT_OUTSIDE, RESULT_ROWS,
    RESULT_TOO_SMALL, ActionCommand, ActionEvent,
)

cdef enum:
    HEAD = 8                 # "SES1" and the number of tokens


# --- the queue --------------------------------------------------------------------------------------------------

cdef void _send_result(State *state, uint64_t id, int32_t result) noexcept nogil:
    cdef ActionEvent event
    memset(&event, 0, sizeof(event))
    event.result = result
    emit_action(state, id, &event)


cdef void actions_add(State *state, const ActionCommand *command) noexcept nogil:
    cdef Action **link = &state.actions
    cdef Action *action = <Action *>calloc(1, sizeof(Action))
    if action == NULL:
        _send_result(state, command.id, RESULT_FAILED)
        return
    action.command = command[0]
    while link[0] != NULL:
        link = &link[0].next
    link[0] = action


cdef void _drop(State *state, Action **link, int32_t result) noexcept nogil:
    cdef Action *action = link[0]
    link[0] = action.next
    if action.command.kind == ACTION_INSERT:
        spare_forget(&state.cache, action.command.blob)
    _send_result(state, action.command.id, result)
    free(action)


cdef void actions_drop(State *state, uint64_t id) noexcept nogil:
    """Drop an action whose client is gone. One that is done is not in the list; its event is on the way."""
    cdef Action **link = &state.actions
    while link[0] != NULL and link[0].command.id != id:
        link = &link[0].next
    if link[0] != NULL:
        _drop(state, link, RESULT_ABORTED)


cdef void actions_drop_all(State *state, int32_t result) noexcept nogil:
    while state.actions != NULL:
        _drop(state, &state.actions, result)


# --- the actions ------------------------------------------------------------------------------------------------

cdef int32_t _save(State *state, Slot *slot, llamad_blob *blob, ActionEvent *event) noexcept nogil:
    cdef size_t n_head = HEAD + <size_t>slot.n_tokens * sizeof(int32_t), n_state
    cdef uint32_t n_tokens = <uint32_t>slot.n_tokens
    if slot_has_rows(&state.slots, slot):
        return RESULT_ROWS
    if flush_pending(state, slot) < 0:
        return RESULT_FAILED
    n_state = state.table.state_size(state.ctx, slot.id, 0)
    event.n_bytes = n_head + n_state
    if event.n_bytes > blob.capacity:
        return RESULT_TOO_SMALL
    memcpy(blob.data, <const char *>b"SES1", 4)
    memcpy(blob.data + 4, &n_tokens, 4)
    memcpy(blob.data + HEAD, slot.tokens, n_head - HEAD)
    if n_state == 0 or state.table.state_get(state.ctx, slot.id, blob.data + n_head, n_state, 0) != n_state:
        return RESULT_FAILED
    event.n_tokens = slot.n_tokens
    event.adapters = slot.adapters
    state.stats.n_saves += 1
    return RESULT_DONE


cdef int32_t _restore(State *state, Slot *slot, const llamad_blob *blob, const ActionCommand *command,
                      ActionEvent *event) noexcept nogil:
    cdef int32_t n_tokens = command.n_tokens
    cdef size_t n_head = HEAD + <size_t>n_tokens * sizeof(int32_t), n_state = command.n_bytes - n_head
    if command.n_bytes <= n_head or command.n_bytes > blob.capacity or not 0 <= n_tokens <= state.slots.n_ctx:
        return RESULT_FAILED
    if flush_pending(state, slot) < 0:
        return RESULT_FAILED
    if not prefix_make_room(state, slot, n_tokens):
        return RESULT_NO_ROOM
    slot_clear(&state.slots, slot)
    event.n_bytes = command.n_bytes
    event.n_tokens = n_tokens
    slot.adapters = command.adapters
    slot.group = 0
    slot.owner = command.owner
    slot.session = 0
    slot.n_processed = 0
    slot.t_used_us = now_us()
    # Restoring an empty state would leave the sequence unchanged; it is empty already.
    if n_tokens and state.table.state_set(state.ctx, slot.id, blob.data + n_head, n_state, 0) != n_state:
        state.table.seq_rm(state.ctx, slot.id, -1, -1)
        return RESULT_FAILED
    memcpy(slot.tokens, blob.data + HEAD, n_head - HEAD)
    slot.n_tokens = slot.n_pos = n_tokens
    state.stats.n_restores += 1
    return RESULT_DONE


cdef int32_t _shift(State *state, Slot *slot, const ActionCommand *command, ActionEvent *event) noexcept nogil:
    event.n_tokens = slot.n_tokens
    if command.n_keep < 0 or command.n_discard <= 0 or command.n_discard > slot.n_tokens - command.n_keep:
        return RESULT_OUTSIDE
    if not slot_can_drop(&state.slots, slot, command.n_keep, command.n_discard):
        return RESULT_CANNOT
    if command.n_discard == slot.n_tokens:
        slot_clear(&state.slots, slot)
    elif slot_shift(&state.slots, slot, command.n_keep, command.n_discard) < 0:
        return RESULT_CANNOT
    event.n_tokens = slot.n_tokens
    return RESULT_DONE


cdef int32_t _tokens(const Slot *slot, llamad_blob *blob, ActionEvent *event) noexcept nogil:
    event.n_tokens = slot.n_tokens + slot.n_parked
    event.n_bytes = <size_t>event.n_tokens * sizeof(int32_t)
    event.n_processed = slot.n_processed
    if event.n_bytes > blob.capacity:
        return RESULT_TOO_SMALL
    memcpy(blob.data, slot.tokens, event.n_bytes)
    return RESULT_DONE


cdef int32_t _act(State *state, Slot *slot, const ActionCommand *command, ActionEvent *event) noexcept nogil:
    cdef llamad_blob *blob = blob_find(command.blob) if command.blob else NULL
    if command.kind == ACTION_INSERT:
        if blob == NULL or command.n_bytes > blob.capacity:
            return RESULT_FAILED
        return cache_insert(&state.cache, &state.slots, blob.data, command)
    if not may_use(slot, command.owner):
        return RESULT_NOT_YOURS
    if command.kind == ACTION_ERASE:
        event.n_tokens = slot.n_tokens + slot.n_parked
        slot_clear(&state.slots, slot)
        return RESULT_DONE
    if command.kind == ACTION_SHIFT or command.kind == ACTION_SAVE:
        parking_return(state, slot)
    if command.kind == ACTION_SHIFT:
        return _shift(state, slot, command, event)
    if blob == NULL:
        return RESULT_FAILED
    if command.kind == ACTION_SAVE:
        return _save(state, slot, blob, event)
    if command.kind == ACTION_RESTORE:
        return _restore(state, slot, blob, command, event)
    return _tokens(slot, blob, event)


cdef void _run(State *state, Slot *slot, const ActionCommand *command) noexcept nogil:
    cdef ActionEvent event
    cdef int64_t t_start = now_us()
    memset(&event, 0, sizeof(event))
    event.result = _act(state, slot, command, &event)
    if command.kind == ACTION_INSERT:
        spare_forget(&state.cache, command.blob)
    event.stall_us = now_us() - t_start
    if command.kind == ACTION_SAVE or command.kind == ACTION_RESTORE or command.kind == ACTION_INSERT:
        state.stats.state_us += event.stall_us
        state.stats.state_us_max = max(state.stats.state_us_max, event.stall_us)
    emit_action(state, command.id, &event)


cdef int _is_long(const Action *action) noexcept nogil:
    return action.command.kind == ACTION_SAVE or action.command.kind == ACTION_RESTORE


cdef int _needs_idle(const Action *action) noexcept nogil:
    """Return whether the action waits until its slot is idle."""
    return action.command.kind != ACTION_LOOK and action.command.kind != ACTION_INSERT


cdef int _is_busy(const State *state) noexcept nogil:
    cdef int32_t i
    for i in range(state.slots.n):
        if state.slots.items[i].state != SLOT_IDLE:
            return 1
    return 0


cdef int32_t actions_run(State *state) noexcept nogil:
    """Run every action whose slot is idle, in order; actions on the same slot keep their order. While any slot is busy,
    only one state is saved or restored between two steps, so that streams stall for one at a time. Return how many were
    put off for that; no task is admitted before them."""
    cdef Action **link = &state.actions
    cdef Action *action
    cdef Slot *slot
    cdef int32_t i, n_long = 0, n_put_off = 0, n_waiting = 0
    cdef int is_sparing = link[0] != NULL and _is_busy(state)
    for i in range(state.slots.n):
        state.slots.items[i].is_awaited = 0
    while link[0] != NULL:
        action = link[0]
        slot = &state.slots.items[action.command.slot]
        if _needs_idle(action) and slot.state == SLOT_IDLE and (
                slot.is_awaited or (is_sparing and n_long > 0 and _is_long(action))):
            slot.is_awaited = 1
            n_put_off += 1
            link = &action.next
        elif action.command.kind == ACTION_INSERT and (
                not cache_prepare_insert(&state.cache, &action.command, n_waiting == 0)
                or (n_waiting > 0 and action.command.n_begin > 0)):
            n_waiting += 1  # another thread copies it, and wakes this one; what needs it stays behind it
            link = &action.next
        elif slot.state == SLOT_IDLE or not _needs_idle(action):
            n_long += _is_long(action)
            link[0] = action.next
            _run(state, slot, &action.command)
            free(action)
        elif action.command.nowait:
            _drop(state, link, RESULT_BUSY)
        else:
            link = &action.next
    return n_put_off
