# Owns: what each sequence of the KV cache holds. Runs on the engine thread.
# Invariant: slot.tokens[:n_tokens] is exactly what llama.cpp's sequence `slot.id` holds, in this order. Its positions
# are 0..n_tokens-1, with two exceptions. With self-extend, the tail from n_grouped on ends at n_pos-1, and everything
# before it was compressed into 0..n_grouped-1. Rows of embeddings may take fewer positions (row_ids.pxd).
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memmove, memset

from llamad.engine.kv.checkpoints cimport (
    Checkpoint, checkpoint_restore, list_cut, list_find, list_free, list_init, list_reaches,
)
from llamad.engine.kv.shared_cells cimport shared_cut, shared_free, shared_init, shared_with_any
from llamad.engine.sampler.logprobs cimport probs_begin, probs_free
from llamad.base.system cimport now_us
from llamad.base.function_table cimport llamad_table
from llamad.engine.kv.task_queue cimport Task
from llamad.tokenizer.detokenizer cimport text_clear, text_free, text_init
from llamad.tokenizer.loop_guard cimport loop_guard_begin, loop_guard_free, loop_guard_init
from llamad.protocol.adapter_span cimport span_common
from llamad.protocol.messages cimport SamplerMark
from llamad.protocol.row_ids cimport ids_positions, run_floor

cdef enum:
    BLOCK = 64               # tokens that are compared at once


cdef int slots_init(Slots *slots, const llamad_table *table, void *ctx, int32_t n, int32_t n_ctx) noexcept nogil:
    """Return 0, or -1 if memory ran out."""
    cdef int32_t i
    memset(slots, 0, sizeof(Slots))
    slots.table = table
    slots.ctx = ctx
    slots.n = n
    slots.n_ctx = n_ctx
    slots.group_n = slots.group_w = 1
    slots.items = <Slot *>calloc(<size_t>n, sizeof(Slot))
    if slots.items == NULL or shared_init(&slots.shared, n) < 0:
        return -1
    for i in range(n):
        slots.items[i].id = i
        slots.items[i].i_output = -1
        slots.items[i].tokens = <int32_t *>malloc(<size_t>n_ctx * sizeof(int32_t))
        slots.items[i].marks = slots.items[i].mark = <SamplerMark *>calloc(DRAFT_MAX + 1, sizeof(SamplerMark))
        if slots.items[i].tokens == NULL or slots.items[i].marks == NULL or text_init(&slots.items[i].text) < 0:
            return -1
        if loop_guard_init(&slots.items[i].loop_guard) < 0:
            return -1
    return 0


cdef int slots_init_checkpoints(Slots *slots, int32_t n_max, int32_t min_step, size_t bytes_max) noexcept nogil:
    """Set up checkpoints, for kinds of memory that need them. Return 0, or -1 if memory ran out."""
    cdef int32_t i
    for i in range(slots.n):
        if list_init(&slots.items[i].checkpoints, n_max) < 0:
            return -1
    slots.checkpoints.n_max = n_max
    slots.checkpoints.min_step = min_step
    slots.checkpoints.bytes_max = bytes_max
    return 0


cdef void slots_free(Slots *slots) noexcept nogil:
    cdef int32_t i
    if slots.items == NULL:
        return
    for i in range(slots.n):
        free(slots.items[i].tokens)
        free(slots.items[i].row)
        free(slots.items[i].marks)
        list_free(&slots.checkpoints, &slots.items[i].checkpoints)
        text_free(&slots.items[i].text)
        loop_guard_free(&slots.items[i].loop_guard)
        probs_free(&slots.items[i].probs)
    free(slots.items)
    slots.items = NULL
    shared_free(&slots.shared)


cdef int32_t common_prefix(const int32_t *a, const int32_t *b, int32_t n) noexcept nogil:
    """Return the length of the common prefix of two lists of n tokens."""
    cdef int32_t i = 0
    while i + BLOCK <= n and memcmp(a + i, b + i, BLOCK * sizeof(int32_t)) == 0:
        i += BLOCK
    while i < n and a[i] == b[i]:
        i += 1
    return i


cdef int slot_is_pending(const Slots *slots, const Slot *slot) noexcept nogil:
    """Return whether the next decode has yet to write what the slot holds."""
    return slots.is_pending and slot.pending_turn == slots.pending_turn


cdef void slot_set_pending(Slots *slots, Slot *slot) noexcept nogil:
    if not slots.is_pending:
        slots.is_pending = 1
        slots.pending_turn += 1
    slot.pending_turn = slots.pending_turn


cdef int may_use(const Slot *slot, uint64_t owner) noexcept nogil:
    """Return whether this owner's tasks and actions may use what the slot holds."""
    return slot.owner == 0 or slot.owner == owner


cdef int32_t slot_common(const Slot *slot, const Task *task) noexcept nogil:
    """Return how much of the task's prompt the slot holds already."""
    return slot_common_held(slot, task, slot.n_tokens)


cdef int32_t slot_common_held(const Slot *slot, const Task *task, int32_t n_held) noexcept nogil:
    """Return how many of the slot's first n_held tokens begin the prompt. Tokens that were computed with other adapters
    or for another owner do not count, and a task without prefix cache uses only what its own group has computed."""
    cdef int32_t n
    if not may_use(slot, task.command.owner):
        return 0
    if not task.command.options.cache_prompt and (task.command.group == 0 or slot.group != task.command.group):
        return 0
    n = span_common(&slot.adapters, &task.command.adapters, min(n_held, task.command.n_prompt))
    return run_floor(task.prompt, common_prefix(slot.tokens, task.prompt, n), task.command.n_prompt)


cdef int32_t slot_pos(const Slots *slots, const Slot *slot, int32_t n) noexcept nogil:
    """Return the position of token n of the slot. It must not be within a run of rows."""
    if slots.takes_rows and n < slot.n_tokens:
        return ids_positions(slot.tokens, n)
    return slot.n_pos - (slot.n_tokens - n)


cdef void slot_drop_partial(Slots *slots, Slot *slot) noexcept nogil:
    """Drop an incomplete run of rows, because nothing could continue from there."""
    if slot.n_partial:
        slot_keep(slots, slot, slot.n_tokens - slot.n_partial)


cdef int slot_has_rows(const Slots *slots, const Slot *slot) noexcept nogil:
    """Return whether it holds rows of embeddings, whose positions must not change."""
    cdef int32_t i
    if slots.takes_rows:
        for i in range(slot.n_tokens):
            if slot.tokens[i] < 0:
                return 1
    return 0


cdef int32_t slot_can_cut(Slots *slots, const Slot *slot, int32_t n) noexcept nogil:
    """Return n if the slot's sequence can be truncated after its first n tokens, else 0. Changes nothing.

    A sliding window may have lost what the kept tokens need, a recurrent state depends on the dropped tokens, and
    grouped positions cannot be undone."""
    if n == slot.n_tokens or n == 0:
        return n
    if not slots.can_share:
        return 0
    if slots.n_swa > 0 and slots.table.seq_pos_min(slots.ctx, slot.id) > max(0, slot_pos(slots, slot, n) - slots.n_swa):
        return 0
    return n if slot_pos(slots, slot, n) >= slot.n_grouped else 0


cdef int32_t slot_can_keep(Slots *slots, const Slot *slot, int32_t n) noexcept nogil:
    """Return how many of its first n tokens the slot can keep: n, fewer with a checkpoint, or 0. Changes nothing."""
    cdef int32_t n_cut = slot_can_cut(slots, slot, n)
    return n_cut if n_cut == n else list_reaches(&slot.checkpoints, n)


cdef int _rewind(Slots *slots, Slot *slot, int32_t n) noexcept nogil:
    """Restore the checkpoint after the slot's first n tokens. Return 0, or -1; then the sequence may hold anything."""
    cdef const Checkpoint *checkpoint = list_find(&slot.checkpoints, n)
    if checkpoint == NULL or checkpoint.n_tokens != n or slots.is_pending:
        return -1
    return checkpoint_restore(&slots.checkpoints, checkpoint, slots.table, slots.ctx, slot.id,
                              slot_pos(slots, slot, n))


cdef int32_t slot_keep(Slots *slots, Slot *slot, int32_t n) noexcept nogil:
    """Truncate the slot's sequence to its first n tokens, or to what a checkpoint has of them. Return how many were
    kept. If that needs a checkpoint, nothing at all may be pending."""
    cdef int32_t n_cut = slot_can_cut(slots, slot, n), n_gone, n_pos
    n = slot_can_keep(slots, slot, n)
    n_gone = slot.n_tokens - n
    n_pos = slot_pos(slots, slot, n)
    if n_cut != n or n == 0:
        if n == 0 or _rewind(slots, slot, n) < 0:
            slot_clear(slots, slot)
            return 0
    elif n_gone > 0 and slots.table.seq_rm(slots.ctx, slot.id, n_pos, -1) != 1:
        slot_clear(slots, slot)
        return 0
    slots.n_evicted += <uint64_t>n_gone
    slot.n_tokens = n
    slot.n_pos = n_pos
    slot.n_partial = 0
    shared_cut(&slots.shared, slot.id, n)
    list_cut(&slots.checkpoints, &slot.checkpoints, n)
    return n


cdef void slot_clear(Slots *slots, Slot *slot) noexcept nogil:
    """Empty the slot's sequence."""
    if slot.n_tokens > 0:
        slots.table.seq_rm(slots.ctx, slot.id, -1, -1)
    slots.n_evicted += <uint64_t>slot.n_tokens
    slot.n_tokens = slot.n_pos = slot.n_grouped = slot.n_partial = slot.n_parked = 0
    slot.host_entry = slot.is_rolled_back = slot.n_returns = 0
    shared_cut(&slots.shared, slot.id, 0)
    list_cut(&slots.checkpoints, &slot.checkpoints, 0)


cdef void slot_take(Slots *slots, Slot *slot, Task *task) noexcept nogil:
    """Start the task in the idle slot, which holds a prefix of its prompt and prefills the rest."""
    slot.n_cached = slot.n_begun = slot.n_tokens
    slot.prefill = task.prompt
    slot.n_prefill = task.command.n_prompt
    slot.n_shown = 0
    slot.task = task
    slot.state = SLOT_PREFILLING
    slot.host_entry = slot.n_parked = slot.is_unsaved = slot.was_saved = 0  # the slot will hold something else
    slots.n_reused += <uint64_t>slot.n_cached
    slot.adapters = task.command.adapters
    slot.t_turn_us = now_us()
    slot.group = task.command.group
    slot.owner = task.command.owner
    slot.session = task.command.session
    slot.retention_s = task.command.retention_s
    slot.n_decoded = slot.truncated = slot.has_new_line = slot.n_kept = slot.n_discarded = 0
    slot.t_prompt_us = slot.t_first_us = slot.t_sent_us = slot.answer_bytes = 0
    slot.i_output = -1
    slot.n_planned = 0
    slot.n_guessed = slot.n_draft = slot.n_drafted = slot.n_accepted = 0
    slot.t_admit_us = now_us()
    text_clear(&slot.text)
    if task.command.options.loop_guard:
        loop_guard_begin(&slot.loop_guard)
    probs_begin(&slot.probs, task.command.options.n_probs, task.command.options.post_sampling_probs != 0)


cdef void slot_release(Slots *slots, Slot *slot) noexcept nogil:
    """Make the slot idle; it keeps what its sequence holds. The caller has closed task and sampler."""
    slot_drop_partial(slots, slot)
    slots.n_suspended -= slot.state == SLOT_SUSPENDED
    slot.n_held = 0
    slot.held_entry = 0
    slot.state = SLOT_IDLE
    slot.task = NULL
    slot.sampler = NULL
    slot.matcher = NULL
    slot.i_output = -1
    slot.n_planned = 0
    slot.t_used_us = now_us()


cdef int slots_others_run(const Slots *slots, const Slot *slot) noexcept nogil:
    """Return whether any other slot has a task that is not suspended."""
    cdef int32_t i
    for i in range(slots.n):
        if i != slot.id and slots.items[i].state in (SLOT_PREFILLING, SLOT_DECODING):
            return 1
    return 0


cdef void slots_forget(Slots *slots) noexcept nogil:
    """Note that all sequences are empty, because the context is new."""
    cdef int32_t i
    for i in range(slots.n):
        slots.n_evicted += <uint64_t>slots.items[i].n_tokens
        slots.items[i].n_tokens = slots.items[i].n_pos = slots.items[i].n_grouped = slots.items[i].n_partial = 0
        shared_cut(&slots.shared, i, 0)
        list_cut(&slots.checkpoints, &slots.items[i].checkpoints, 0)


cdef int slot_has_window(Slots *slots, const Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil:
    """Return whether a sliding window has all the cells that it needs once n_discard tokens after the first n_keep are
    gone: it then reaches back over the gap, to tokens that it may have lost. Changes nothing."""
    cdef int32_t n_left = slot.n_tokens - n_discard
    if slots.n_swa == 0 or n_left - n_keep >= slots.n_swa:
        return 1
    return slots.table.seq_pos_min(slots.ctx, slot.id) <= max(0, n_left - slots.n_swa + 1)


cdef int32_t slot_can_drop(Slots *slots, const Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil:
    """Return whether n_discard tokens after the first n_keep can be removed without a trace. Changes nothing."""
    cdef int32_t n_end = n_keep + n_discard
    if n_keep == 0 and n_end == slot.n_tokens:
        return 1
    if slots.group_n > 1 or not slots.can_share or slot_has_rows(slots, slot):
        return 0  # grouped positions cannot be separated, and a recurrent state depends on the tokens
    if n_end == slot.n_tokens:
        return slot_can_cut(slots, slot, n_keep) == n_keep
    if not slots.table.can_shift(slots.ctx) or shared_with_any(&slots.shared, slot.id) > n_end:
        return 0
    return slot_has_window(slots, slot, n_keep, n_discard)


cdef int32_t slot_discard(Slots *slots, const Slot *slot, int32_t n_keep) noexcept nogil:
    """Return how many tokens after the first n_keep are dropped when the context is shifted; 0 if it cannot be shifted.
    Changes nothing."""
    cdef int32_t n_left = slot.n_tokens - n_keep, n_discard = slot.task.command.options.n_discard
    if slots.group_n > 1 or slot.n_tokens <= 4 or slot_has_rows(slots, slot) or not slots.table.can_shift(slots.ctx):
        return 0
    n_discard = min(n_discard, n_left - 1) if n_discard > 0 else n_left // 2
    return n_discard if n_discard < n_left else 0


cdef int slot_shift(Slots *slots, Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil:
    """Make room: drop n_discard tokens after the first n_keep and move the rest forward, whose cells no other slot may
    share. Return 0, or -1 if the memory refuses; then nothing has changed."""
    if slots.table.seq_rm(slots.ctx, slot.id, n_keep, n_keep + n_discard) != 1:
        return -1
    if n_keep + n_discard < slot.n_tokens:
        slots.table.seq_add(slots.ctx, slot.id, n_keep + n_discard, slot.n_tokens, -n_discard)
    memmove(slot.tokens + n_keep, slot.tokens + n_keep + n_discard,
            <size_t>(slot.n_tokens - n_keep - n_discard) * sizeof(int32_t))
    slot_set_pending(slots, slot)
    slot.n_tokens -= n_discard
    slot.n_pos = slot.n_tokens
    slot.host_entry = slot.is_unsaved = slot.was_saved = 0
    slot.adapters.n_base -= max(0, min(slot.adapters.n_base - n_keep, n_discard))
    shared_cut(&slots.shared, slot.id, n_keep)
    list_cut(&slots.checkpoints, &slot.checkpoints, n_keep)
    slot.truncated = 1
    slots.n_evicted += <uint64_t>n_discard
    return 0


cdef void slot_regroup(Slots *slots, Slot *slot) noexcept nogil:
    """Group positions (self-extend): whenever a window of positions is full, each group_n adjacent tokens in it get one
    position, so that positions grow more slowly than the text. The window is moved to a multiple of its size and
    divided, and the tokens after it are moved up to it."""
    cdef int32_t w = slots.group_w, n = slots.group_n, first, n_moved, n_gone = w // n * (n - 1)
    if n <= 1:
        return
    while slot.n_pos >= slot.n_grouped + w:
        first = slot.n_grouped
        n_moved = first * n // w * n_gone
        slots.table.seq_add(slots.ctx, slot.id, first, slot.n_pos, n_moved)
        slots.table.seq_div(slots.ctx, slot.id, first + n_moved, first + n_moved + w, n)
        slots.table.seq_add(slots.ctx, slot.id, first + n_moved + w, slot.n_pos + n_moved, -n_moved - n_gone)
        slot_set_pending(slots, slot)
        slot.n_pos -= n_gone
        slot.n_grouped += w // n


cdef int32_t slot_until(const Slot *slot) noexcept nogil:
    """Return how many tokens the prefilling slot will hold at its next stop, or at the end of its prompt."""
    cdef int32_t i, n = slot.n_prefill
    if slot.n_tokens < slot.adapters.n_base:
        n = min(n, slot.adapters.n_base)  # the rest needs other adapters
    for i in range(STOPS_MAX):
        if slot.stops[i] > slot.n_tokens:
            n = min(n, slot.stops[i])
            break
    if slot.task.command.n_runs == 0:
        return n
    i = slot.n_tokens
    while i < n and slot.prefill[i] >= 0:
        i += 1
    return i


cdef int32_t slot_room(const Slots *slots, const Slot *slot) noexcept nogil:
    """Return how many tokens may be prefilled before positions must be grouped again."""
    return slot.n_grouped + slots.group_w - slot.n_pos if slots.group_n > 1 else slots.n_ctx


cdef int32_t slots_check_integrity(const Slots *slots) noexcept nogil:
    """Return 0 if the fields of every slot are consistent, else the number of the first broken rule."""
    cdef const Slot *slot
    cdef int32_t i, j, n_suspended = 0
    for i in range(slots.n):
        slot = &slots.items[i]
        n_suspended += slot.state == SLOT_SUSPENDED
        if slot.id != i:
            return 1
        if (slot.state == SLOT_IDLE) != (slot.task == NULL):
            return 2
        if slot.n_tokens < 0 or slot.n_tokens > slots.n_ctx:
            return 3
        if slot.sampler != NULL and (slot.state == SLOT_IDLE or (
                slot.state == SLOT_PREFILLING and slot.prefill != slot.tokens)):
            return 4
        if slot.state == SLOT_PREFILLING and slot.n_tokens >= slot.n_prefill:
            return 5
        if slots.takes_rows and slot.n_partial == 0 and slot.n_pos != ids_positions(slot.tokens, slot.n_tokens):
            return 16
        if slots.group_n == 1 and not slots.takes_rows and (slot.n_pos != slot.n_tokens or slot.n_grouped):
            return 7
        if slot.n_pos > slot.n_tokens or slot.n_pos < slot.n_grouped:
            return 8
        if shared_with_any(&slots.shared, slot.id) > slot.n_tokens:
            return 18
        if slot.deferral and (slot.state < SLOT_DECODING or slot.matcher == NULL):
            return 9
        if slot.checkpoints.n and slot.checkpoints.items[slot.checkpoints.n - 1].n_tokens > slot.n_tokens:
            return 10
        for j in range(1, slot.checkpoints.n):
            if slot.checkpoints.items[j - 1].n_tokens >= slot.checkpoints.items[j].n_tokens:
                return 11
        for j in range(i):
            if slot.task != NULL and slots.items[j].task == slot.task:
                return 6
        if slot.state == SLOT_SUSPENDED and slot.n_tokens or slot.state != SLOT_SUSPENDED and slot.n_held:
            return 12
        if slot.held_entry and slot.state != SLOT_SUSPENDED:
            return 13
        if slot.restored_entry and (slot.state != SLOT_PREFILLING or slot.n_tokens >= slot.n_restored):
            return 19
        if slot.n_parked and (slot.n_tokens or slot.state != SLOT_IDLE or slot.host_entry == 0):
            return 17
    if n_suspended != slots.n_suspended:
        return 14
    return 0
