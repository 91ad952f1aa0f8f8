# Owns: which slot serves a task, and what each sequence of the KV cache holds. Runs on the engine thread.
# Invariant: slot.tokens[:n_tokens] is exactly what llama.cpp's sequence `slot.id` holds, at positions 0..n_tokens-1.
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memmove, memset

from llamad.engine.system cimport now_us
from llamad.engine.table cimport llamad_table
from llamad.engine.tasks cimport Task
from llamad.engine.text cimport text_clear, text_free, text_init
from llamad.engine.wire cimport TASK_CACHE_PROMPT


cdef int slots_init(Slots *slots, const llamad_table *table, void *ctx, int32_t n, int32_t n_ctx) noexcept nogil:
    """0, or -1 without memory."""
    cdef int32_t i
    memset(slots, 0, sizeof(Slots))
    slots.table = table
    slots.ctx = ctx
    slots.n = n
    slots.n_ctx = n_ctx
    slots.items = <Slot *>calloc(<size_t>n, sizeof(Slot))
    if slots.items == NULL:
        return -1
    for i in range(n):
        slots.items[i].id = i
        slots.items[i].i_output = -1
        slots.items[i].tokens = <int32_t *>malloc(<size_t>n_ctx * sizeof(int32_t))
        if slots.items[i].tokens == NULL or text_init(&slots.items[i].text) < 0:
            return -1
    return 0


cdef void slots_free(Slots *slots) noexcept nogil:
    cdef int32_t i
    if slots.items == NULL:
        return
    for i in range(slots.n):
        free(slots.items[i].tokens)
        text_free(&slots.items[i].text)
    free(slots.items)
    slots.items = NULL


cdef int32_t _common(const Slot *slot, const Task *task) noexcept nogil:
    """How much of the prompt the slot holds already. Caches made with other adapters hold nothing of use."""
    cdef int32_t n = min(slot.n_tokens, task.command.n_prompt), i = 0
    if slot.adapter_set != task.command.adapter_set or not task.command.flags & TASK_CACHE_PROMPT:
        return 0
    while i < n and slot.tokens[i] == task.prompt[i]:
        i += 1
    return i


cdef Slot *slots_choose(Slots *slots, const Task *task) noexcept nogil:
    """The idle slot this task should run in, or NULL. Changes nothing.

    A slot that holds enough of the prompt wins; else the least recently used, where never-used slots come first
    and lowest first, which keeps busy slots dense."""
    cdef Slot *slot
    cdef Slot *best = NULL
    cdef Slot *oldest = NULL
    cdef int32_t i, n, n_best = 0
    if task.command.id_slot >= 0:
        slot = &slots.items[task.command.id_slot]
        return slot if slot.state == SLOT_IDLE else NULL
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state != SLOT_IDLE:
            continue
        if oldest == NULL or slot.t_used_us < oldest.t_used_us:
            oldest = slot
        n = _common(slot, task)
        if n > n_best:
            n_best = n
            best = slot
    if best != NULL and <float>n_best >= slots.similarity_min * <float>task.command.n_prompt:
        return best
    return oldest


cdef int32_t _keep_prefix(Slots *slots, Slot *slot, int32_t n) noexcept nogil:
    """Cuts the slot's sequence to its first n tokens and returns how many could be kept: n or 0.

    Recurrent memories cannot be cut, and a sliding window may have lost what the kept part needs."""
    cdef int32_t n_gone = slot.n_tokens - n
    if n_gone > 0 and n > 0 and slots.n_swa > 0:
        if slots.table.seq_pos_min(slots.ctx, slot.id) > max(0, n - slots.n_swa):
            n = 0
    if n_gone > 0 and n > 0 and slots.table.seq_rm(slots.ctx, slot.id, n, -1) != 1:
        n = 0
    if n == 0 and slot.n_tokens > 0:
        slots.table.seq_rm(slots.ctx, slot.id, -1, -1)
    slots.n_evicted += <uint64_t>(slot.n_tokens - n)
    slot.n_tokens = n
    return n


cdef void slot_take(Slots *slots, Slot *slot, Task *task) noexcept nogil:
    """The idle slot begins to read the task's prompt, behind what it holds of it already."""
    # The last token is always read again: its logits are needed.
    cdef int32_t n = min(_common(slot, task), task.command.n_prompt - 1)
    slot.task = task
    slot.state = SLOT_READING
    slot.n_cached = _keep_prefix(slots, slot, n)
    slots.n_reused += <uint64_t>slot.n_cached
    slot.adapter_set = task.command.adapter_set
    slot.n_decoded = slot.truncated = slot.has_new_line = 0
    slot.t_prompt_us = slot.t_first_us = 0
    slot.i_output = -1
    slot.n_planned = 0
    slot.t_admit_us = now_us()
    text_clear(&slot.text)


cdef void slot_release(Slots *slots, Slot *slot) noexcept nogil:
    """The slot is idle again and keeps what its sequence holds. The caller has closed task and sampler."""
    slot.state = SLOT_IDLE
    slot.task = NULL
    slot.sampler = NULL
    slot.i_output = -1
    slot.n_planned = 0
    slot.t_used_us = now_us()


cdef void slots_forget(Slots *slots) noexcept nogil:
    """The context is new: no sequence holds anything."""
    cdef int32_t i
    for i in range(slots.n):
        slots.n_evicted += <uint64_t>slots.items[i].n_tokens
        slots.items[i].n_tokens = 0


cdef int slot_can_shift(Slots *slots, const Slot *slot) noexcept nogil:
    return slots.table.can_shift(slots.ctx) and slot.n_tokens > 4


cdef void slot_shift(Slots *slots, Slot *slot, int32_t n_keep) noexcept nogil:
    """Makes room: drops tokens behind the first n_keep and moves the rest forward."""
    cdef int32_t n_left, n_discard = slot.task.command.n_discard
    n_keep = max(0, min(n_keep, slot.n_tokens - 4))
    n_left = slot.n_tokens - n_keep
    if n_discard <= 0 or n_discard > n_left - 1:
        n_discard = n_left // 2
    slots.table.seq_rm(slots.ctx, slot.id, n_keep, n_keep + n_discard)
    slots.table.seq_add(slots.ctx, slot.id, n_keep + n_discard, slot.n_tokens, -n_discard)
    memmove(slot.tokens + n_keep, slot.tokens + n_keep + n_discard,
            <size_t>(slot.n_tokens - n_keep - n_discard) * sizeof(int32_t))
    slot.n_tokens -= n_discard
    slot.truncated = 1
    slots.n_evicted += <uint64_t>n_discard


cdef int32_t slots_cells_used(const Slots *slots) noexcept nogil:
    cdef int32_t i, n = 0
    for i in range(slots.n):
        n += slots.items[i].n_tokens
    return n


cdef int32_t slots_evict_idle(Slots *slots) noexcept nogil:
    """Drops the longest unused idle prefix and returns its tokens; 0 when no idle slot holds any."""
    cdef Slot *oldest = NULL
    cdef Slot *slot
    cdef int32_t i, n
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state == SLOT_IDLE and slot.n_tokens > 0 and (oldest == NULL or slot.t_used_us < oldest.t_used_us):
            oldest = slot
    if oldest == NULL:
        return 0
    n = oldest.n_tokens
    _keep_prefix(slots, oldest, 0)
    return n


cdef int32_t slots_check_integrity(const Slots *slots) noexcept nogil:
    """0 when every slot's fields agree with each other, else the number of the first broken rule."""
    cdef const Slot *slot
    cdef int32_t i, j
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.id != i:
            return 1
        if (slot.state == SLOT_IDLE) != (slot.task == NULL):
            return 2
        if slot.n_tokens < 0 or slot.n_tokens > slots.n_ctx:
            return 3
        if slot.state != SLOT_WRITING and slot.sampler != NULL:
            return 4
        if slot.state == SLOT_READING and slot.n_tokens >= slot.task.command.n_prompt:
            return 5
        for j in range(i):
            if slot.task != NULL and slots.items[j].task == slot.task:
                return 6
    return 0
