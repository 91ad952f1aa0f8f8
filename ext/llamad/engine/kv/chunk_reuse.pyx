# Owns: the reuse of chunks of a slot's old prompt that come again in the new one after something was removed
# (--cache-reuse). Runs on the engine thread, at admission. It is inexact: a chunk's values depend on what was removed.
#
# After the common prefix, the slot's tokens are skipped until a chunk of at least n_cache_reuse of them continues the
# prompt. It is moved there, and so on. So chunks only move to lower positions, and what the slot holds has no gaps.
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memmove

from llamad.engine.costs.scheduler cimport REUSE_WORK_MAX
from llamad.engine.kv.checkpoints cimport list_cut
from llamad.engine.kv.shared_cells cimport shared_cut, shared_with_any
from llamad.engine.kv.slots cimport Slot, Slots, common_prefix, slot_common, slot_set_pending
from llamad.engine.kv.task_queue cimport Task

ctypedef struct Walk:
    int32_t n_held           # tokens of the prompt that the slot holds, in order
    int32_t at               # index in the tokens that the slot held
    int32_t n_chunk          # length of the chunk there; 0: no more chunks
    int64_t work             # tokens compared


cdef int _can_reuse(Slots *slots, const Slot *slot, const Task *task, int32_t n) noexcept nogil:
    """Return whether the memory can move what is after the slot's first n tokens. A sliding window must have all of
    it."""
    if task.command.options.n_cache_reuse <= 0 or not task.command.options.cache_prompt or n == 0:
        return 0
    if slot.adapters.set != task.command.adapters.set or slot.adapters.n_base or task.command.adapters.n_base:
        return 0  # a moved chunk must have been computed with the same adapters
    if slots.group_n > 1 or slots.takes_rows or not slots.can_share or not slots.table.can_shift(slots.ctx):
        return 0
    if shared_with_any(&slots.shared, slot.id) > n:
        return 0
    return slots.n_swa == 0 or slots.table.seq_pos_min(slots.ctx, slot.id) == 0


cdef void _next_chunk(Walk *walk, const Slot *slot, const Task *task) noexcept nogil:
    cdef int32_t n_least = task.command.options.n_cache_reuse, n_left = task.command.n_prompt - 1 - walk.n_held
    walk.n_chunk = 0
    while slot.n_tokens - walk.at >= n_least and n_left >= n_least and walk.work < REUSE_WORK_MAX:
        walk.n_chunk = common_prefix(slot.tokens + walk.at, task.prompt + walk.n_held,
                                     min(slot.n_tokens - walk.at, n_left))
        walk.work += walk.n_chunk + 1
        if walk.n_chunk >= n_least:
            return
        walk.n_chunk = 0
        walk.at += 1


cdef int32_t reuse_reaches(Slots *slots, const Slot *slot, const Task *task) noexcept nogil:
    """Return how many prompt tokens the slot has with chunks that can be moved; 0 if there are none. Changes
    nothing."""
    cdef Walk walk
    walk.n_held = walk.at = min(slot_common(slot, task), task.command.n_prompt - 1)
    walk.work = 0
    if not _can_reuse(slots, slot, task, walk.n_held):
        return 0
    _next_chunk(&walk, slot, task)
    if walk.n_chunk == 0:
        return 0
    while walk.n_chunk:
        walk.n_held += walk.n_chunk
        walk.at += walk.n_chunk
        _next_chunk(&walk, slot, task)
    return walk.n_held


cdef int32_t reuse_chunks(Slots *slots, Slot *slot, const Task *task) noexcept nogil:
    """Move the chunks and truncate the slot after them. Return how many tokens it holds. Only if reuse_reaches() is not
    0."""
    cdef Walk walk
    walk.n_held = walk.at = min(slot_common(slot, task), task.command.n_prompt - 1)
    walk.work = 0
    shared_cut(&slots.shared, slot.id, walk.n_held)
    list_cut(&slots.checkpoints, &slot.checkpoints, walk.n_held)  # later ones belong to the old prompt
    _next_chunk(&walk, slot, task)
    while walk.n_chunk:
        if walk.at > walk.n_held:
            slots.table.seq_rm(slots.ctx, slot.id, walk.n_held, walk.at)
            slots.table.seq_add(slots.ctx, slot.id, walk.at, walk.at + walk.n_chunk, walk.n_held - walk.at)
            slot_set_pending(slots, slot)
            memmove(slot.tokens + walk.n_held, slot.tokens + walk.at, <size_t>walk.n_chunk * sizeof(int32_t))
            slots.n_moved += <uint64_t>walk.n_chunk
        walk.n_held += walk.n_chunk
        walk.at += walk.n_chunk
        _next_chunk(&walk, slot, task)
    slots.table.seq_rm(slots.ctx, slot.id, walk.n_held, -1)
    slots.n_evicted += <uint64_t>(slot.n_tokens - walk.n_held)
    slot.n_tokens = slot.n_pos = walk.n_held
    return walk.n_held
