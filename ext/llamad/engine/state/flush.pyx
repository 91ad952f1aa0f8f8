# Owns: a decode that is made only for its side effect. Runs on the engine thread, between two steps, when the plan's
# batch is free. Leaves every slot unchanged.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport SLOT_IDLE, Slot
from llamad.engine.state.engine_state cimport State
from llamad.engine.threads.logits_arrival cimport arrival_overwritten
from llamad.engine.threads.sampler_pool cimport sampler_pool_drain

cdef enum:
    NO_ROOM = 1              # decode's code


cdef int flush_pending(State *state, Slot *slot) noexcept nogil:
    """Make llama.cpp do the copies and moves that it keeps for its next decode. A state that is read before them would
    be the old one, and one that is written would be overwritten. Return 0, or -1.

    This decodes a token that is removed again: in an empty slot, which every kind of memory allows, or else in the slot
    itself, if it has room."""
    cdef Slot *other = slot
    cdef int32_t i, code
    if not state.slots.is_pending:
        return 0
    for i in range(state.slots.n):
        if state.slots.items[i].n_tokens == 0 and state.slots.items[i].state == SLOT_IDLE:
            other = &state.slots.items[i]
    if other.n_tokens and not state.slots.can_share or other.n_tokens >= state.slots.n_ctx:
        return -1
    state.plan.batch.n_tokens = 1
    state.plan.batch.token[0] = 0
    state.plan.batch.pos[0] = other.n_pos
    state.plan.batch.output[0] = state.plan.has_device != 0  # every decode on a GPU has an output (batch.pyx)
    state.plan.seq_ids[0] = other.id
    sampler_pool_drain(state.sampler_pool)  # a row of the last step may still be being reset
    code = state.table.decode(state.ctx, &state.plan.batch)
    state.plan.batch.n_tokens = 0
    arrival_overwritten(&state.arrival, 1)
    if code == 0:
        state.table.seq_rm(state.ctx, other.id, other.n_pos, -1)
    elif code != NO_ROOM:  # llama.cpp does the copies and moves even if it has no room
        return -1
    state.slots.is_pending = 0
    return 0
