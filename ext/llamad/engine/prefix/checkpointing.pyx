# Owns: when a checkpoint of a prefilling slot is made, and what is dropped for it. Runs on the engine thread, before
# each batch. Makes none for kinds of memory that can be truncated (slots.checkpoints.n_max is 0 then).
#
# A later prompt is likely to share this one up to a few places, and prefill stops there: at the end of its last
# message, where the output begins; at the start of that message, which may be edited; and where an earlier prompt
# differed, so that the next one that forks there finds a checkpoint. A token that ends a generation is the end of a
# message. A checkpoint is also made where a conversation continues, which costs no stop, and in the middle of long
# prompts, after any step.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.system cimport now_us
from llamad.engine.cache.cache_types cimport cache_held
from llamad.engine.cache.host_cache cimport cache_drop_checkpoints, cache_drop_least
from llamad.engine.costs.scheduler cimport (
    CHECKPOINT_CUT_MIN, CHECKPOINT_MESSAGE_MAX, CHECKPOINT_OPENING_MAX, CHECKPOINT_TAIL, CHECKPOINT_TOKENS_MIN, GRAPH_US,
    STATES_US_MAX,
)
from llamad.engine.kv.checkpoints cimport CheckpointList, CheckpointOf, Checkpoints, checkpoint_make, list_drop, list_thin
from llamad.engine.kv.slots cimport SLOT_PREFILLING, STOPS_MAX, Slot, slot_is_pending
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.state.engine_state cimport State
from llamad.protocol.row_ids cimport run_floor


# --- places -----------------------------------------------------------------------------------------------------

cdef int32_t _message_end(const State *state, const Task *task, int32_t begin, int32_t end) noexcept nogil:
    """Return the index after the last token of prompt[begin:end] that ends a message; 0 if there is none."""
    cdef int32_t i = end - 1
    while i >= max(begin, 0):
        if state.table.is_eog(state.vocab, task.prompt[i]):
            return i + 1
        i -= 1
    return 0


cdef int _is_worth(const State *state, int32_t n, double cost_us) noexcept nogil:
    """Return whether a checkpoint costs less than prefilling n tokens again; 1 without a GPU or while costs are
    unknown."""
    if not state.plan.has_device or state.plan.best_token_us <= 0 or state.slots.checkpoints.us <= 0:
        return 1
    return n * state.plan.best_token_us >= state.slots.checkpoints.us + cost_us


cdef void checkpointing_plan(State *state, Slot *slot, const Task *task, int32_t n_seen) noexcept nogil:
    """Choose where the slot stops while it prefills the task's prompt, of which n_seen tokens were seen before."""
    cdef int32_t n_prompt = task.command.n_prompt, i, k = 0, n_last = slot.n_tokens
    cdef int32_t stops[STOPS_MAX]
    for i in range(STOPS_MAX):
        slot.stops[i] = 0
    slot.n_looked = 0
    if state.slots.checkpoints.n_max == 0 or n_prompt - slot.n_tokens <= CHECKPOINT_CUT_MIN:
        return
    stops[2] = _message_end(state, task, n_prompt - 1 - CHECKPOINT_OPENING_MAX, n_prompt - 1)
    if stops[2] == 0:
        stops[2] = n_prompt - CHECKPOINT_TAIL
    stops[1] = _message_end(state, task, max(slot.n_tokens, stops[2] - CHECKPOINT_MESSAGE_MAX), stops[2] - 1)
    stops[0] = min(n_seen, n_prompt - 1)
    if stops[0] > stops[1]:
        stops[0], stops[1] = stops[1], stops[0]
    if stops[1] > stops[2]:
        stops[1], stops[2] = stops[2], stops[1]
    for i in range(STOPS_MAX):
        stops[i] = run_floor(task.prompt, stops[i], n_prompt)
        if stops[i] - n_last >= CHECKPOINT_CUT_MIN and _is_worth(state, stops[i] - n_last, GRAPH_US):
            slot.stops[k] = n_last = stops[i]
            k += 1


cdef int _needs_one(const State *state, const Slot *slot, int32_t n_since) noexcept nogil:
    """Return whether a checkpoint should be made here, n_since tokens after the previous one."""
    cdef int32_t i
    for i in range(STOPS_MAX):
        if slot.stops[i] == slot.n_tokens:
            return 1
    if n_since < CHECKPOINT_TOKENS_MIN:
        return 0
    if slot.n_tokens == slot.n_cached:
        return _is_worth(state, n_since, 0)
    return n_since >= max(state.slots.checkpoints.min_step, state.plan.ubatch)


# --- room -------------------------------------------------------------------------------------------------------

cdef int _drop_oldest(State *state) noexcept nogil:
    """Drop the oldest checkpoint of all slots. Return whether there was one."""
    cdef CheckpointList *items
    cdef CheckpointList *oldest = NULL
    cdef int32_t i, k, at = 0
    cdef uint64_t number = 0
    for i in range(state.slots.n):
        items = &state.slots.items[i].checkpoints
        for k in range(items.n):
            if oldest == NULL or items.items[k].number < number:
                oldest = items
                at = k
                number = items.items[k].number
    if oldest == NULL:
        return 0
    state.slots.checkpoints.n_dropped += 1
    list_drop(&state.slots.checkpoints, oldest, at)
    return 1


cdef int _make_room(State *state, size_t n) noexcept nogil:
    """Make room for n bytes: within the limit of all checkpoints, for which those of prompt cache entries are dropped
    first, and within the limit of that cache. Return whether there is room."""
    cdef size_t n_most = state.slots.checkpoints.bytes_max
    if n > n_most:
        return 0
    while state.slots.checkpoints.n_bytes + n > n_most:
        if not cache_drop_checkpoints(&state.cache) and not _drop_oldest(state):
            return 0
    while cache_held(&state.cache) and (
            cache_held(&state.cache) + state.slots.checkpoints.n_bytes + n > state.cache.bytes_max):
        if not cache_drop_least(&state.cache):
            return 0
    return 1


cdef int checkpointing_trim(State *state) noexcept nogil:
    """Drop one checkpoint or one prompt cache entry, if they take more memory than they may now. Return whether there
    was one."""
    cdef Checkpoints *all = &state.slots.checkpoints
    if all.n_bytes > all.bytes_max:
        return cache_drop_checkpoints(&state.cache) or _drop_oldest(state)
    if cache_held(&state.cache) + all.n_bytes > state.cache.bytes_max:
        return cache_drop_least(&state.cache)
    return 0


# --- making -----------------------------------------------------------------------------------------------------

cdef void checkpointing_add(State *state, Slot *slot) noexcept nogil:
    """Make a checkpoint of what the slot holds now, if it has none of that yet and there is room."""
    cdef CheckpointList *items = &slot.checkpoints
    cdef CheckpointOf of
    cdef size_t n_state
    if state.slots.checkpoints.n_max == 0 or items.n and items.items[items.n - 1].n_tokens >= slot.n_tokens:
        return
    if slot_is_pending(&state.slots, slot) or slot.n_partial:
        return
    n_state = state.table.state_size(state.ctx, slot.id, 1)
    list_thin(&state.slots.checkpoints, items)
    if n_state and _make_room(state, n_state):
        of.seq, of.tokens, of.n_tokens, of.owner = slot.id, slot.tokens, slot.n_tokens, slot.owner
        of.adapters = slot.adapters
        checkpoint_make(&state.slots.checkpoints, items, state.table, state.ctx, &of, n_state)


cdef void _add_if_needed(State *state, Slot *slot) noexcept nogil:
    cdef const CheckpointList *items = &slot.checkpoints
    cdef int32_t n_last = items.items[items.n - 1].n_tokens if items.n else 0
    if slot.n_tokens > n_last and _needs_one(state, slot, slot.n_tokens - n_last):
        checkpointing_add(state, slot)


cdef void checkpointing_run(State *state) noexcept nogil:
    """Make the checkpoints that prefilling slots need after their last step. While other slots decode, those for which
    no time is left in this turn are skipped."""
    cdef Slot *slot
    cdef int64_t t_start
    cdef int32_t i
    if state.slots.checkpoints.n_max == 0:
        return
    t_start = now_us()
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state != SLOT_PREFILLING or slot.n_tokens == slot.n_looked:
            continue
        slot.n_looked = slot.n_tokens
        if state.plan.n_decoding + state.plan.n_stalled == 0 or now_us() - t_start <= STATES_US_MAX:
            _add_if_needed(state, slot)
