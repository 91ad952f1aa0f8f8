# Owns: the drafts of a step, and what becomes of them. Runs on the engine thread.
#
# A step verifies a draft by computing its tokens behind the slot's next one. Each of their rows is sampled as usual, as
# long as the token before it is the drafted one (slot_sample.pyx): so the text, its probabilities and the random
# numbers are those of single steps. What was drafted wrongly is removed again before anything else happens, so between
# two steps a sequence holds exactly the tokens of its slot.
#
# All decoding slots have drafts of the same length, filled up with tokens that nobody looks at: if each slot has its own
# stream, llama.cpp would make several graphs of different lengths.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.system cimport load_int, now_us
from llamad.engine.drafts.drafts cimport Drafts
from llamad.engine.drafts.widths cimport (
    WIDTHS, Clocks, clocks_clear, clocks_draft, clocks_token, clocks_tokens, widths_choose, widths_learn, widths_planned,
)
from llamad.engine.events cimport take_token
from llamad.engine.kv.cells cimport cells_fit
from llamad.engine.kv.slots cimport DRAFT_MAX, SLOT_DECODING, SLOT_PREFILLING, Slot, slot_advance
from llamad.engine.scheduler.fillers cimport fillers_bound
from llamad.engine.state.engine_state cimport State
from llamad.engine.threads.grammar_pool cimport grammar_pool_next


# --- before a step ------------------------------------------------------------------------------------------------

cdef int _decodes(const Slot *slot) noexcept nogil:
    return (slot.state == SLOT_DECODING and not slot.sits_out and not slot.task.is_paused
            and not load_int(&slot.deferral))


cdef int _can_draft(const Slot *slot) noexcept nogil:
    """Return whether the slot's drafts can be verified. With both a grammar and probabilities, a row of the latter may
    still be open when earlier ones are sent."""
    return slot.matcher == NULL or slot.probs.n_top == 0


cdef int32_t _n_draft_max(const State *state, int32_t n_slots) noexcept nogil:
    """Return how many drafted tokens each of the slots has room for. Fillers have as many as those that decode."""
    cdef const Slot *slot
    cdef int32_t i, n = min(<int32_t>DRAFT_MAX, min(state.plan.rows_max, state.plan.ubatch) // n_slots - 1)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if _decodes(slot):
            n = min(n, state.slots.n_ctx - slot.n_tokens - 2)
    while n > 0 and not cells_fit(&state.slots, n_slots * (1 + n)):
        n //= 2
    return max(0, n)


cdef int32_t _choose(State *state, int32_t n_slots, int32_t n_rows, int32_t n_longest) noexcept nogil:
    """Return how many drafted tokens each decoding slot gets; the longest draft is n_longest. With fillers a step
    without drafts has n_rows."""
    cdef double tokens[WIDTHS]
    cdef int32_t i, k, n, n_max = _n_draft_max(state, n_rows)
    if state.drafts.n_fixed >= 0:
        return min(n_max, state.drafts.n_fixed) if n_longest else 0
    for k in range(WIDTHS):
        tokens[k] = 0
    for i in range(state.slots.n):
        if _decodes(&state.slots.items[i]):
            for k in range(WIDTHS):
                tokens[k] += clocks_tokens(&state.drafts.clocks[i], k)
    n = widths_choose(&state.drafts.widths, tokens, n_slots, n_rows, n_max + 1) - 1
    # A GPU is slow with a new shape, so the shape stays. On a CPU every row costs.
    return n if state.plan.has_device else min(n, n_longest)


cdef void draft_step_plan(State *state) noexcept nogil:
    """Choose how many tokens the next step verifies. Call before the batch is filled."""
    cdef Drafts *drafts = &state.drafts
    cdef Slot *slot
    cdef int32_t i, k, n_slots = 0, n_rows = 0, first = -1, last = -1, n_longest = 0
    cdef int64_t now
    state.plan.n_draft = 0
    if drafts.fn == NULL:
        return
    now = now_us()
    widths_learn(&drafts.widths, now, drafts.n_slots, drafts.n_taken)
    drafts.n_slots = drafts.n_taken = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING and not slot.sits_out:
            widths_planned(&drafts.widths, now, 0, 1)
            return
        if _decodes(slot):
            n_slots += 1
            first = i if first < 0 else first
            last = i
            n_longest = max(n_longest, slot.n_guessed)
    if n_slots:
        n_rows = fillers_bound(&state.plan, &state.slots, first, last, n_slots)
    if n_slots and not drafts.is_refused:
        state.plan.n_draft = _choose(state, n_slots, n_rows, n_longest)
        for i in range(state.slots.n):
            slot = &state.slots.items[i]
            for k in range(slot.n_guessed, state.plan.n_draft):
                slot.draft[k] = 0
    drafts.is_refused = 0
    widths_planned(&drafts.widths, now, n_rows, 1 + state.plan.n_draft)


# --- after a step -------------------------------------------------------------------------------------------------

cdef void _guess(State *state, Slot *slot, int32_t token) noexcept nogil:
    """Judge the drafts by the slot's new token, and make the next one."""
    cdef Drafts *drafts = &state.drafts
    cdef Clocks *clocks = &drafts.clocks[slot.id]
    cdef int32_t n_max
    slot.n_guessed = 0
    if drafts.fn == NULL or slot.n_tokens >= state.slots.n_ctx:
        return
    n_max = slot.task.command.options.speculative_n_max
    n_max = DRAFT_MAX if n_max < 0 else min(<int32_t>DRAFT_MAX, n_max)
    if drafts.tasks[slot.id] != slot.task.command.id:
        drafts.tasks[slot.id] = slot.task.command.id
        clocks_clear(clocks)
    clocks_token(clocks, token)
    slot.tokens[slot.n_tokens] = token  # it is decoded next
    if n_max:
        slot.n_guessed = drafts.fn(drafts.arg, slot, slot.n_tokens + 1, slot.draft, n_max)
    if slot.n_guessed < min(n_max, slot.task.command.options.speculative_n_min):
        slot.n_guessed = 0
    clocks_draft(clocks, slot.draft, slot.n_guessed)
    if not _can_draft(slot):
        slot.n_guessed = 0


cdef void draft_step_take(State *state, Slot *slot, int64_t now) noexcept nogil:
    """Take the tokens that were sampled for the slot in this step, and remove what was drafted wrongly."""
    cdef int32_t i, n = slot.n_samples, is_deferred = slot.deferral != 0
    cdef int32_t pos_end = slot.n_pos + state.plan.n_draft
    if slot.n_draft:
        slot.n_drafted += slot.n_draft
        slot.n_accepted += n - 1 + is_deferred
        state.stats.n_drafts += 1
        state.stats.n_drafted += <uint64_t>slot.n_draft
        state.stats.n_accepted += <uint64_t>(n - 1 + is_deferred)
        for i in range(n - 1 + is_deferred):
            state.stats.n_accepted_at[i] += 1
    state.drafts.n_taken += n
    state.drafts.n_slots += 1
    for i in range(n):
        if i:
            slot_advance(slot, 1)
        take_token(state, slot, slot.samples[i], now)
        if slot.task == NULL:
            break
        _guess(state, slot, slot.samples[i])
    if slot.task != NULL and is_deferred and n:
        slot_advance(slot, 1)  # the row of the deferred token was that of a drafted one
    if slot.n_pos < pos_end:
        state.table.seq_rm(state.ctx, slot.id, slot.n_pos, -1)


cdef void draft_step_take_deferred(State *state, int64_t now) noexcept nogil:
    """Take the tokens that grammar threads have sampled since the last turn."""
    cdef Slot *slot = grammar_pool_next(state.grammar_pool, &state.slots)
    cdef int32_t token
    while slot != NULL:
        token = slot.sampled
        take_token(state, slot, token, now)
        if slot.task != NULL:
            _guess(state, slot, token)
        slot = grammar_pool_next(state.grammar_pool, &state.slots)
