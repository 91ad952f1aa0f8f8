# Owns: what an idle slot keeps for a new task, and what it takes over from another slot instead. Runs on the engine
# thread, at admission.
#
# With a stream for each slot llama.cpp copies the whole buffer at the next decode: worth it only for more tokens than
# the copy takes time. In a unified cache it only marks the cells, which then belong to both: positions are a
# property of the cell, so neither slot may move them any more (slots.pyx, _n_shared).
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memcpy

from llamad.engine.slots cimport Slot, Slots, slot_can_keep, slot_clear, slot_common, slot_keep
from llamad.engine.tasks cimport Task

cdef enum:
    GAIN_MIN = 32            # tokens
    GAIN_PART = 256          # and this part of a stream


cdef int32_t _gain_min(const Slots *slots, const Slot *source, const Task *task) noexcept nogil:
    """What a copy must save. The tasks of a group share whatever there is."""
    if task.command.group and source.group == task.command.group:
        return 1
    return GAIN_MIN if slots.n_cells else max(<int32_t>GAIN_MIN, slots.n_ctx // GAIN_PART)


cdef Slot *_source(Slots *slots, const Slot *slot, const Task *task, int32_t n_own) noexcept nogil:
    """The slot that holds so much more of the prompt than the chosen one that it should be copied, or NULL.
    Changes nothing."""
    cdef Slot *other
    cdef Slot *best = NULL
    cdef int32_t i, n, n_best = n_own
    if not slots.can_share or slots.group_n > 1:
        return NULL
    for i in range(slots.n):
        other = &slots.items[i]
        if other.id == slot.id:
            continue
        n = slot_can_keep(slots, other, min(slot_common(other, task), task.command.n_prompt - 1))
        if n > n_best and n - n_own >= _gain_min(slots, other, task):
            n_best = n
            best = other
    return best


cdef void _copy(Slots *slots, Slot *slot, Slot *source, int32_t n) noexcept nogil:
    """The slot's sequence becomes the source's first n tokens."""
    slot_clear(slots, slot)
    slots.table.seq_cp(slots.ctx, source.id, slot.id)
    slots.is_pending = 1
    if source.n_tokens > n and slots.table.seq_rm(slots.ctx, slot.id, n, -1) != 1:
        slots.table.seq_rm(slots.ctx, slot.id, -1, -1)
        return
    memcpy(slot.tokens, source.tokens, <size_t>n * sizeof(int32_t))
    slot.n_tokens = slot.n_pos = n
    if slots.n_cells:
        slot.n_shared = n
        source.n_shared = max(source.n_shared, n)
    slots.n_copied += <uint64_t>n


cdef void share_prepare(Slots *slots, Slot *slot, const Task *task) noexcept nogil:
    """The idle slot holds the longest part of the task's prompt that there is, and nothing else. The last token is
    left out: it is always read again, for its logits."""
    cdef int32_t n = slot_can_keep(slots, slot, min(slot_common(slot, task), task.command.n_prompt - 1))
    cdef Slot *source = _source(slots, slot, task, n)
    if source == NULL:
        slot_keep(slots, slot, n)
    else:
        _copy(slots, slot, source, min(slot_common(source, task), task.command.n_prompt - 1))
