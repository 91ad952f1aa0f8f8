# Owns: which prefix an idle slot keeps for a new task, or takes over from another slot or from the prompt cache, and
# which tasks wait for a slot that is prefilling their prefix. Runs on the engine thread, at admission.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.cache.cache_entries cimport entries_get
from llamad.engine.cache.cache_lookup cimport cache_common, cache_find, cache_holds
from llamad.engine.cache.cache_saves cimport cache_has_all, cache_save, cache_save_next, cache_unsaved
from llamad.engine.cache.chains cimport chain_can_cut, chain_can_hold
from llamad.engine.cache.eviction cimport slots_cheaper, slots_least_valuable
from llamad.engine.cache.host_cache cimport cache_prepare_save, cache_restore
from llamad.engine.costs.scheduler cimport (
    CACHE_TOKENS_MIN, GPU_SAVE_TOKENS_MIN, RESTORE_PART, RETURN_LEARN_RATE, SAVE_DOUBT, SAVE_GAIN, SAVE_PART,
    SAVE_PARTS_GAIN, SAVE_TOKENS_MIN, SAVE_TRIALS, SEGMENT_TOKENS, STATES_US_MAX, VALUED_TOKENS_MIN, WAIT_TOKENS_MIN,
)
from llamad.engine.kv.cells cimport cells_busy, cells_fit, cells_spare
from llamad.engine.kv.chunk_reuse cimport reuse_chunks, reuse_reaches
from llamad.engine.kv.shared_cells cimport shared_with_any
from llamad.engine.kv.slots cimport (
    SLOT_DECODING, SLOT_PREFILLING, Slot, Slots, common_prefix, may_use, slot_can_cut, slot_can_keep, slot_clear,
    slot_common, slot_is_pending, slot_keep, slots_others_run,
)
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.prefix.checkpointing cimport checkpointing_plan
from llamad.engine.prefix.copying cimport prefix_copy, prefix_copy_gain, prefix_copy_reaches
from llamad.engine.prefix.prompt_ends cimport prompt_end_row
from llamad.engine.prefix.restoring cimport restoring_begin, restoring_pays
from llamad.engine.scheduler.token_costs cimport costs_us
from llamad.engine.state.engine_state cimport State
from llamad.engine.state.flush cimport flush_pending
from llamad.protocol.adapter_span cimport span_common
from llamad.protocol.row_ids cimport run_floor


# --- waiting for a slot that prefills the same ------------------------------------------------------------------

cdef int prefix_is_awaited(const Slots *slots, const Task *task) noexcept nogil:
    """Return whether the task still waits for a prefix that another slot is prefilling. This must be cheap, because it
    runs for all waiting tasks in every turn."""
    cdef const Slot *slot
    if task.held_n == 0:
        return 0
    slot = &slots.items[task.held_slot]
    return slot.state == SLOT_PREFILLING and slot.task.command.id == task.held_task and slot.n_tokens < task.held_n


cdef int32_t _will_hold(const Slots *slots, const Slot *slot, const Task *task) noexcept nogil:
    """Return how much of the task's prompt a prefilling slot will hold."""
    cdef int32_t n_prompt = slot.n_prefill, n
    if not may_use(slot, task.command.owner):
        return 0
    n = span_common(&slot.adapters, &task.command.adapters, min(n_prompt, task.command.n_prompt - 1))
    n = common_prefix(slot.prefill, task.prompt, n)
    n = run_floor(task.prompt, n, task.command.n_prompt)
    # A sliding window has lost what is more than a ubatch before its end.
    return n if slots.n_swa == 0 or n_prompt - n <= slots.n_swa_spare else 0


cdef int prefix_should_wait(State *state, Task *task) noexcept nogil:
    """Return whether the task should wait for a slot that is prefilling a prefix of its prompt, because that is much
    longer than what any slot holds now. A waiting task is checked again only when that slot has it, or has ended."""
    cdef Slots *slots = &state.slots
    cdef Slot *slot
    cdef Slot *source = NULL
    cdef int32_t i, n, n_held = 0, n_best = 0
    cdef uint64_t id = 0
    task.held_n = 0
    if not slots.can_share or slots.group_n > 1 or not task.command.options.cache_prompt:
        return 0
    for i in range(slots.n):
        slot = &slots.items[i]
        if slot.state != SLOT_PREFILLING:
            n_held = max(n_held, slot_can_keep(slots, slot, min(slot_common(slot, task), task.command.n_prompt - 1)))
            continue
        n = _will_hold(slots, slot, task)
        n_held = max(n_held, min(n, slot.n_tokens))
        if n > slot.n_tokens and (n > n_best or (n == n_best and slot.n_tokens > source.n_tokens)):
            n_best = n
            source = slot
    if source == NULL or n_best - n_held < max(<int32_t>WAIT_TOKENS_MIN, prefix_copy_gain(slots, source, task)):
        return 0
    if n_best - cache_find(&state.cache, slots, task, &id) < WAIT_TOKENS_MIN:
        return 0
    task.held_slot = source.id
    task.held_task = source.task.command.id
    task.held_n = n_best
    return 1


# --- from slot to slot ------------------------------------------------------------------------------------------

cdef Slot *_source(Slots *slots, const Slot *slot, const Task *task, int32_t n_own, int32_t n_max,
                   int32_t *n_copied) noexcept nogil:
    """Return the slot to copy from, or NULL; n_copied becomes the number of tokens. It must hold enough more of the
    prompt's first n_max tokens than the chosen slot. Changes nothing."""
    cdef Slot *other
    cdef Slot *best = NULL
    cdef int32_t i, n
    n_copied[0] = n_own
    for i in range(slots.n):
        other = &slots.items[i]
        if other.id == slot.id:
            continue
        n = prefix_copy_reaches(slots, other, task, min(slot_common(other, task), n_max))
        if n > n_copied[0] and n - n_own >= prefix_copy_gain(slots, other, task):
            n_copied[0] = n
            best = other
    return best


cdef Slot *prefix_fork(Slots *slots, Slot *slot, const Task *task) noexcept nogil:
    """Return the idle slot in which a task runs that was to run in this one. It is another one if this one would lose much
    of a conversation with the same beginning, which the other takes over: so both conversations go on. Changes nothing.

    A slot that the client names, or that served the same session, gives up what it has."""
    cdef int32_t n, n_gain
    cdef Slot *other
    if task.command.options.id_slot >= 0 or (task.command.session != 0 and task.command.session == slot.session):
        return slot
    n = slot_common(slot, task)
    n_gain = prefix_copy_gain(slots, slot, task)
    if n < n_gain or slot.n_tokens - n < VALUED_TOKENS_MIN or prefix_copy_reaches(slots, slot, task, n) < n:
        return slot
    if reuse_reaches(slots, slot, task) > n:
        return slot
    other = slots_cheaper(slots, slot, n, n_gain)
    return slot if other == NULL else other


cdef int32_t prefix_shared_running(Slots *slots, const Task *task) noexcept nogil:
    """Return how much of the prompt the task will have in cells of running slots, so that it needs no room for that.
    Changes nothing."""
    cdef const Slot *other
    cdef int32_t i, n, n_best = 0
    if slots.n_cells == 0:
        return 0
    for i in range(slots.n):
        other = &slots.items[i]
        if other.state != SLOT_PREFILLING and other.state != SLOT_DECODING:
            continue
        n = prefix_copy_reaches(slots, other, task, min(slot_common(other, task), task.command.n_prompt - 1))
        if n >= prefix_copy_gain(slots, other, task):
            n_best = max(n_best, n)
    return n_best


# --- the prompt cache -------------------------------------------------------------------------------------------

cdef int prefix_time_is_up(const State *state) noexcept nogil:
    """Return whether this turn has spent enough time on states; the rest waits for the next turn."""
    return state.cache.turn_us > STATES_US_MAX


cdef int _pays(const State *state, int32_t begin, int32_t end, int32_t n_copied, double gain) noexcept nogil:
    """Return whether prefilling the tokens from `begin` to `end` takes `gain` times as long as copying the state of
    n_copied tokens, as far as both costs are known."""
    return state.cache.n_learned > 0 and state.plan.best_token_us > 0 and (
        costs_us(&state.plan.token_costs, begin, end) >= gain * n_copied * state.cache.save_token_us)


cdef double _save_gain(const State *state, const Slot *slot) noexcept nogil:
    """Return how many times as long as saving the slot prefilling it must take, so that it is saved: the more, the fewer
    prompts have come back of late."""
    cdef double gain = SAVE_GAIN
    if chain_can_hold(&state.cache, &state.slots, slot) or chain_can_cut(&state.cache, &state.slots, slot):
        gain = SAVE_PARTS_GAIN
    return min(<double>SAVE_GAIN, gain / max(state.cache.return_rate, 0.01))


cdef void _note_return(State *state, const Task *task, int32_t n_held) noexcept nogil:
    """Note whether a prompt of which n_held tokens are held has come back: whether they are half of it."""
    cdef double is_return = 2 * n_held >= task.command.n_prompt
    if task.command.n_prompt >= GPU_SAVE_TOKENS_MIN:
        state.cache.return_rate += RETURN_LEARN_RATE * (is_return - state.cache.return_rate)


cdef int _is_cheap_to_save(State *state, const Slot *slot, int32_t n_held) noexcept nogil:
    """Return whether saving the tokens from n_held on pays: they may be prefilled faster than what the cache lacks of the
    state is copied, above all by a GPU. The cost of saving is measured first: a few times where it is done in parts, and
    otherwise while nothing decodes. A CPU also saves whatever would lose a large part."""
    cdef int32_t n = slot.n_tokens - n_held, n_copied = cache_unsaved(&state.cache, &state.slots, slot)
    cdef int in_parts = (chain_can_hold(&state.cache, &state.slots, slot)
                         or chain_can_cut(&state.cache, &state.slots, slot))
    if _pays(state, n_held, slot.n_tokens, n_copied, _save_gain(state, slot)):
        return 1
    if not state.plan.has_device and SAVE_PART * n >= n_copied:
        return 1
    if state.cache.n_learned >= (SAVE_TRIALS if in_parts else 1):
        state.cache.save_token_us *= SAVE_DOUBT
        return 0
    return state.plan.best_token_us > 0 and n >= CACHE_TOKENS_MIN and (
        in_parts or state.plan.n_decoding + state.plan.n_stalled == 0)


cdef int32_t _least_worth_saving(const State *state, int32_t n_saved) noexcept nogil:
    """Return the fewest tokens worth saving of a prompt whose first n_saved tokens are saved."""
    if not state.plan.has_device:
        return SAVE_TOKENS_MIN
    return CACHE_TOKENS_MIN if n_saved >= GPU_SAVE_TOKENS_MIN else GPU_SAVE_TOKENS_MIN


cdef int _is_worth_saving(State *state, const Slot *slot, int32_t n_keep) noexcept nogil:
    """Return whether many tokens would be lost if the slot kept only its first n_keep tokens: tokens that no other slot
    and no cache entry holds."""
    cdef const Slots *slots = &state.slots
    cdef const Slot *other
    cdef int32_t i, n, n_saved, n_held = n_keep
    if state.cache.bytes_max == 0 or slots.group_n > 1:
        return 0
    for i in range(slots.n):
        other = &slots.items[i]
        if other.id == slot.id or not may_use(other, slot.owner):
            continue
        n = span_common(&slot.adapters, &other.adapters, min(slot.n_tokens, other.n_tokens))
        n = common_prefix(slot.tokens, other.tokens, n)
        if n == other.n_tokens or (slots.can_share and slots.n_swa == 0):
            n_held = max(n_held, n)
    n_saved = cache_holds(&state.cache, slots, slot)
    n_held = max(n_held, n_saved)
    if slot.n_tokens - n_held < _least_worth_saving(state, n_saved):
        return 0
    return _is_cheap_to_save(state, slot, n_held)


cdef void _save(State *state, Slot *slot, int32_t n_keep) noexcept nogil:
    """Save the slot if that pays, before it is truncated to n_keep tokens or given to another prompt."""
    if not _is_worth_saving(state, slot, n_keep):
        return
    if not slot_is_pending(&state.slots, slot) or flush_pending(state, slot) == 0:
        cache_save(&state.cache, &state.slots, slot)


cdef int prefix_is_saved(const State *state, const Slot *slot) noexcept nogil:
    """Return whether the prompt cache has all that the slot holds, as far as the slot has noted."""
    return cache_has_all(&state.cache, slot.host_entry, slot)


cdef int _waits_for_pages(State *state, const Slot *slot) noexcept nogil:
    """Return whether others run while another thread prepares the pages for what is saved next of the slot."""
    return slots_others_run(&state.slots, slot) and not cache_prepare_save(&state.cache, &state.slots, slot)


cdef int _save_for_now(State *state, Slot *slot, int32_t n_left) noexcept nogil:
    """Save the idle slot until the time of this turn is up, but not the last n_left tokens. Return whether it is done."""
    cdef Slots *slots = &state.slots
    if slot_is_pending(slots, slot) and flush_pending(state, slot) < 0:
        return 1
    if not chain_can_hold(&state.cache, slots, slot):
        if _waits_for_pages(state, slot):
            return 0
        slot.host_entry = cache_save(&state.cache, slots, slot)
        return slot.host_entry == 0 or not prefix_time_is_up(state)
    while cache_unsaved(&state.cache, slots, slot) > n_left:
        if prefix_time_is_up(state) or _waits_for_pages(state, slot):
            return 0
        if cache_save_next(&state.cache, slots, slot) == 0:
            return 1
    return 1


cdef int prefix_is_given_up(State *state, Slot *slot, const Task *task) noexcept nogil:
    """Save what the idle slot loses if it takes the task, so that streams of other slots do not stand still for that and
    for what the task restores. Return whether the slot can take the task now; if not, call it again in the next turn."""
    cdef Slots *slots = &state.slots
    if not slots_others_run(slots, slot) or prefix_is_saved(state, slot):
        return 1
    if not _is_worth_saving(state, slot, slot_can_keep(slots, slot, slot_common(slot, task))):
        return 1
    return _save_for_now(state, slot, SEGMENT_TOKENS)


cdef void prefix_evict(State *state, Slot *slot) noexcept nogil:
    """Evict what the idle slot holds."""
    if not state.cache.drops_idle and not prefix_time_is_up(state):
        _save(state, slot, 0)
    slot_clear(&state.slots, slot)


cdef int32_t prefix_evict_idle(State *state, const Slot *spared) noexcept nogil:
    """Evict the least valuable idle prefix. Return its length; 0 if no idle slot but `spared` holds any."""
    cdef Slot *slot = slots_least_valuable(&state.slots, spared)
    cdef int32_t n = 0
    if slot != NULL:
        n = slot.n_tokens
        prefix_evict(state, slot)
    return n


cdef int _evict_for(State *state, const Slot *slot, const Slot *source, int32_t n) noexcept nogil:
    """Evict idle prefixes until n more tokens fit, but neither the slot's nor the source's. Each is saved first. Return
    whether that is done as far as possible; if not, the time of this turn is up."""
    cdef Slot *other
    while not cells_fit(&state.slots, n):
        other = slots_least_valuable(&state.slots, slot)
        if other == NULL or other == source:
            return 1
        if _is_worth_saving(state, other, 0) and not _save_for_now(state, other, 0):
            return 0
        slot_clear(&state.slots, other)
    return 1


cdef int prefix_has_room(State *state, Slot *slot, const Task *task) noexcept nogil:
    """Evict idle prefixes of a unified cache until the task's prompt fits into it beside the others. Return whether that is
    done; if not, because saving them takes long, call it again in the next turn."""
    cdef Slots *slots = &state.slots
    cdef int32_t n_have = 0, n_output = cells_spare(slots), n_prompt = task.command.n_prompt
    cdef int32_t n_own = slot_can_keep(slots, slot, min(slot_common(slot, task), n_prompt))
    cdef const Slot *source
    cdef uint64_t id = 0
    cdef int is_done
    if slots.n_cells == 0 or state.cache.bytes_max == 0 or state.cache.drops_idle:
        return 1
    if task.command.options.n_predict >= 0:
        n_output = min(n_output, task.command.options.n_predict)
    source = _source(slots, slot, task, n_own, n_prompt, &n_have)
    n_have += max(0, slot.n_tokens - max(n_own, shared_with_any(&slots.shared, slot.id)))  # it gives these up
    if cells_fit(slots, n_prompt + n_output - n_have):
        return 1
    _entry(state, task, n_own, &id)
    state.cache.pinned = id
    is_done = _evict_for(state, slot, source, n_prompt + n_output - n_have)
    state.cache.pinned = 0
    return is_done


cdef int prefix_make_room(State *state, const Slot *slot, int32_t n_tokens) noexcept nogil:
    """Evict idle prefixes of a unified cache to make room for a state, but none if that would not be enough. What the
    slot itself holds counts as free. Return whether there is room."""
    cdef Slots *slots = &state.slots
    if slots.n_cells and cells_busy(slots) + n_tokens > slots.n_cells:
        return 0
    while not cells_fit(slots, n_tokens - slot.n_tokens + shared_with_any(&slots.shared, slot.id)):
        if prefix_evict_idle(state, slot) == 0:
            return 0
    return 1


cdef int _restore(State *state, Slot *slot, uint64_t id, int32_t n) noexcept nogil:
    """Make the slot's sequence the entry's first n tokens. Return 0, or -1. The entry is pinned while states are saved
    to make room for it."""
    cdef int has_room
    if flush_pending(state, slot) < 0:
        return -1
    state.cache.pinned = id
    _save(state, slot, 0)
    has_room = prefix_make_room(state, slot, entries_get(&state.cache, id).n_tokens)
    state.cache.pinned = 0
    if not has_room:
        return -1
    if restoring_pays(state, slot, id):
        restoring_begin(state, slot, id, n)
        return 0
    if cache_restore(&state.cache, &state.slots, slot, id) < 0:
        return -1
    if 4 * n < 3 * slot.n_tokens:
        slot.n_returns = 0  # another conversation, with the same beginning
    if slot_keep(&state.slots, slot, n) != n:
        return -1
    state.cache.n_hits += 1
    state.cache.n_restored += <uint64_t>n
    return 0


cdef int32_t _entry(const State *state, const Task *task, int32_t n_held, uint64_t *id) noexcept nogil:
    """Return how many tokens of which entry to restore; 0 if none saves enough prefill beyond what slots hold."""
    cdef int32_t n = cache_find(&state.cache, &state.slots, task, id), n_more = n - n_held, n_entry
    if n_more < CACHE_TOKENS_MIN:
        return 0
    n_entry = entries_get(&state.cache, id[0]).n_tokens
    return n if RESTORE_PART * n_more >= n_entry or _pays(state, n_held, n, n_entry, SAVE_GAIN) else 0


cdef void _keep(State *state, Slot *slot, int32_t n) noexcept nogil:
    """Truncate the slot to n tokens. Nothing may be pending if that needs a checkpoint."""
    if state.slots.is_pending and slot_can_cut(&state.slots, slot, n) != n and flush_pending(state, slot) < 0:
        n = 0
    slot_keep(&state.slots, slot, n)


cdef int32_t _returns(const Slot *slot, int32_t n) noexcept nogil:
    """Return how often the slot's conversation went on, if it does so now with its first n tokens; 0 if too little of it
    is left, because that is another conversation."""
    return slot.n_returns + 1 if n > 0 and 4 * n >= 3 * slot.n_tokens else 0


cdef void _prepare(State *state, Slot *slot, const Task *task) noexcept nogil:
    """Make the idle slot hold the longest available prefix of the task's prompt, and nothing else. The last token is
    left out: it is computed again for its logits, unless those were kept for this task."""
    cdef Slots *slots = &state.slots
    cdef int32_t n_max = task.command.n_prompt - (prompt_end_row(state, task) == NULL)
    cdef int32_t n = slot_can_keep(slots, slot, min(slot_common(slot, task), n_max))
    cdef int32_t n_entry = 0, n_copied = 0, n_returns, n_moved = reuse_reaches(slots, slot, task)
    cdef Slot *source = _source(slots, slot, task, max(n, n_moved), n_max, &n_copied)
    cdef uint64_t id = 0
    if state.cache.bytes_max:
        n_entry = _entry(state, task, n_copied, &id)
        _note_return(state, task, max(n_entry, n_copied, n_moved))
        if n_entry:
            if _restore(state, slot, id, n_entry) == 0:
                return
            n_moved = 0
            # Other slots, and this one, may have lost what they held to make room for it.
            n = slot_can_keep(slots, slot, min(slot_common(slot, task), n_max))
            source = _source(slots, slot, task, n, n_max, &n_copied)
        elif slot.n_tokens:
            _save(state, slot, n if source == NULL else 0)
    if source == NULL and n_moved:
        reuse_chunks(slots, slot, task)
        slot.n_returns = 0
    elif source == NULL:
        n_returns = _returns(slot, n)
        _keep(state, slot, n)
        slot.n_returns = n_returns
    else:
        n_returns = _returns(source, n_copied)
        prefix_copy(state, slot, source, n_copied)
        slot.n_returns = n_returns


cdef int32_t _seen(const State *state, const Task *task) noexcept nogil:
    """Return how much of the prompt any slot or cache entry begins with, whether or not it can be used."""
    cdef int32_t i, n = 0
    if state.slots.checkpoints.n_max == 0:
        return 0
    for i in range(state.slots.n):
        n = max(n, slot_common(&state.slots.items[i], task))
    return max(n, cache_common(&state.cache, task))


cdef void prefix_prepare(State *state, Slot *slot, const Task *task) noexcept nogil:
    """Prepare the idle slot for the task, before it takes it."""
    cdef int32_t n_seen = _seen(state, task)
    _prepare(state, slot, task)
    checkpointing_plan(state, slot, task, n_seen)
