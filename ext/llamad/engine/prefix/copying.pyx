# Owns: how a prefix is copied from one slot's sequence to another's. Runs on the engine thread, at admission.
#
# If each slot has its own KV stream, llama.cpp copies the whole buffer at the next decode, which pays only for long
# prefixes. In a unified cache it only marks the cells, which then belong to both. Positions are a property of the cell,
# so neither slot may move them any more (kv/shared_cells.pyx).
#
# The cache of a sliding window cannot be shared in this way: llama.cpp frees a cell that has left the window only if it
# belongs to one sequence, and two sequences that share cells soon fill the cache. So the slot gets a copy of the
# window, as a partial state, and shares only the cells of full attention. The same method moves a slot to a checkpoint
# of the source.
#
# A recurrent state is copied only between the completions of one request, which all begin at the end of its prompt.
from libc.stdint cimport int32_t, uint8_t, uint64_t
from libc.string cimport memcpy

from llamad.engine.costs.scheduler cimport COPY_CONTEXT_PART, COPY_TOKENS_MIN, COPY_WINDOW_PART
from llamad.engine.state.flush cimport flush_pending
from llamad.engine.kv.checkpoints cimport (
    Checkpoint, checkpoint_restore, list_cut, list_find, list_reaches, list_share,
)
from llamad.engine.kv.shared_cells cimport shared_copy
from llamad.engine.kv.slots cimport (
    Slot, Slots, slot_can_cut, slot_clear, slot_is_pending, slot_pos, slot_set_pending,
)
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.state.engine_state cimport State
from llamad.protocol.blobs cimport pages_close, pages_open


cdef int _is_sibling(const Slot *source, const Task *task) noexcept nogil:
    """Return whether the slot's last task was a completion of the same request."""
    return task.command.group != 0 and source.group == task.command.group


cdef int _can_cut_copy(Slots *slots, const Slot *source, int32_t n) noexcept nogil:
    """Return whether a copy of the source's sequence can be truncated after its first n tokens."""
    return slot_can_cut(slots, source, n) == n and not source.is_rolled_back


cdef int32_t prefix_copy_reaches(Slots *slots, const Slot *source, const Task *task, int32_t n) noexcept nogil:
    """Return how many of the source's first n tokens a slot can take over for the task: n, fewer with a checkpoint, or
    0. Changes nothing."""
    if slots.group_n > 1 or not slots.can_share and not _is_sibling(source, task):
        return 0
    if _can_cut_copy(slots, source, n):
        return n
    if slots.can_share and slots.n_window == 0:
        return 0
    return list_reaches(&source.checkpoints, n)


cdef int32_t prefix_copy_gain(const Slots *slots, const Slot *source, const Task *task) noexcept nogil:
    """Return how many tokens a copy must save. The completions of one request share whatever there is."""
    if _is_sibling(source, task):
        return 1
    if slots.n_cells == 0:
        return max(<int32_t>COPY_TOKENS_MIN, slots.n_ctx // COPY_CONTEXT_PART)
    return max(<int32_t>COPY_TOKENS_MIN, slots.n_swa // COPY_WINDOW_PART if slots.n_window else 0)


cdef int _own_window(State *state, const Slot *slot) noexcept nogil:
    """Give the slot its own cells for its window. Return 0, or -1."""
    cdef size_t n = state.table.state_size(state.ctx, slot.id, 1)
    cdef uint8_t *pages = pages_open(n) if n else NULL
    cdef int code = -1
    if pages == NULL:
        return -1
    if state.table.state_get(state.ctx, slot.id, pages, n, 1) == n:
        code = 0 if state.table.state_set(state.ctx, slot.id, pages, n, 1) == n else -1
    pages_close(pages, n)
    return code


cdef int _cut(State *state, Slot *slot, const Slot *source, int32_t n, int32_t n_pos) noexcept nogil:
    """Truncate the slot's sequence, which is that of the source, to its first n tokens. Return 0, or -1."""
    cdef const Checkpoint *checkpoint
    if _can_cut_copy(&state.slots, source, n):
        if source.n_tokens > n and state.table.seq_rm(state.ctx, slot.id, n_pos, -1) != 1:
            return -1
        return _own_window(state, slot) if state.slots.n_window else 0
    checkpoint = list_find(&source.checkpoints, n)
    if checkpoint == NULL or checkpoint.n_tokens != n or flush_pending(state, slot) < 0:
        return -1
    return checkpoint_restore(&state.slots.checkpoints, checkpoint, state.table, state.ctx, slot.id, n_pos)


cdef int prefix_copy(State *state, Slot *slot, const Slot *source, int32_t n) noexcept nogil:
    """Make the slot's sequence the source's first n tokens, where n is limited by prefix_copy_reaches(). Return 0, or
    -1; then the slot is empty."""
    cdef Slots *slots = &state.slots
    cdef int32_t n_pos = slot_pos(slots, source, n)
    slot_clear(slots, slot)
    if slots.n_window and flush_pending(state, slot) < 0:
        return -1
    slots.table.seq_cp(slots.ctx, source.id, slot.id, -1, -1)
    if slots.n_cells == 0 or slot_is_pending(slots, source):
        slot_set_pending(slots, slot)
    slot.n_tokens = source.n_tokens  # from now on it holds tokens
    slot.n_pos = source.n_pos
    if _cut(state, slot, source, n, n_pos) < 0:
        slot_clear(slots, slot)
        return -1
    memcpy(slot.tokens, source.tokens, <size_t>n * sizeof(int32_t))
    slot.n_tokens = n
    slot.n_pos = n_pos
    list_share(&slots.checkpoints, &slot.checkpoints, &source.checkpoints)
    list_cut(&slots.checkpoints, &slot.checkpoints, n)
    if slots.n_cells:
        shared_copy(&slots.shared, slot.id, source.id, n)
    slots.n_copied += <uint64_t>n
    return 0
