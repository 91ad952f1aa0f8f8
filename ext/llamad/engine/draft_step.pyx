# Owns: the drafts of a step, and what becomes of them. Runs on the engine thread.
#
# A step verifies a draft by computing its tokens behind the slot's next one. Each of their rows is sampled as usual, as
# long as the token before it is the drafted one (slot_sample.pyx): so the text, its probabilities and the random
# numbers are those of single steps. What was drafted wrongly is removed again before anything else happens, so between
# two steps a sequence holds exactly the tokens of its slot.
#
# A recurrent state cannot be truncated, but llama.cpp can keep the states after each of a step's last tokens. One of
# these is chosen, and becomes the sequence's at its next decode. That is right only for tokens of the last decode, and
# only once, so nothing else may remove tokens of such a memory.
#
# All decoding slots have drafts of the same length, filled up with tokens that nobody looks at: if each slot has its own
# stream, llama.cpp would make several graphs of different lengths.
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from llamad.base.system cimport now_us
from llamad.engine.costs.drafts cimport FOLLOW_PIECES
from llamad.engine.drafts.draft_model cimport model_works
from llamad.engine.drafts.drafts cimport Drafts, drafts_can_verify, drafts_decodes, drafts_expect
from llamad.engine.drafts.forced_text cimport forced_draft, forced_follow
from llamad.engine.drafts.match_finder cimport PIECE_TOKENS
from llamad.engine.drafts.widths cimport (
    WIDTHS, Clocks, clocks_clear, clocks_draft, clocks_token, widths_cheapest, widths_choose, widths_learn, widths_plain_us,
    widths_planned, widths_try,
)
from llamad.engine.events cimport take_token
from llamad.engine.kv.cells cimport cells_fit
from llamad.engine.kv.slots cimport DRAFT_MAX, SLOT_PREFILLING, Slot, slot_advance
from llamad.engine.state.model_step cimport (
    model_step_choose, model_step_computes, model_step_draft, model_step_fixed, model_step_forget, model_step_learn,
    model_step_read, model_step_token, model_step_try, model_step_verified,
)
from llamad.engine.sampler.sampler cimport sampler_mark
from llamad.engine.scheduler.fillers cimport fillers_bound
from llamad.engine.state.engine_state cimport State
from llamad.engine.threads.grammar_pool cimport grammar_pool_next


# --- before a step ------------------------------------------------------------------------------------------------

cdef int32_t _n_draft_max(const State *state, int32_t n_slots) noexcept nogil:
    """Return how many drafted tokens each of the slots has room for, and can be removed from it again. Fillers have as
    many as those that decode."""
    cdef const Slot *slot
    cdef int32_t i, n = min(<int32_t>DRAFT_MAX, min(state.plan.rows_max, state.plan.ubatch) // n_slots - 1)
    if state.drafts.n_rollback:
        n = min(n, state.drafts.n_rollback)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if drafts_decodes(slot):
            n = min(n, state.slots.n_ctx - slot.n_tokens - 2)
    while n > 0 and not cells_fit(&state.slots, n_slots * (1 + n)):
        n //= 2
    return max(0, n)


cdef int _is_untried(const State *state) noexcept nogil:
    """Return whether a slot has a draft whose task has verified none so far."""
    cdef const Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if drafts_decodes(slot) and slot.n_drafted == 0 and slot.n_guessed:
            return 1
    return 0


cdef int32_t _choose(State *state, int32_t n_slots, int32_t n_rows, int32_t has_model) noexcept nogil:
    """Return how many drafted tokens each decoding slot gets. With fillers a step without drafts has n_rows. has_model:
    there is a draft model that works."""
    cdef double tokens[WIDTHS]
    cdef double text_tokens[WIDTHS]
    cdef double draft_us = 0
    cdef int32_t i, n, n_max = _n_draft_max(state, n_rows), n_longest = 0
    for i in range(state.slots.n):
        if drafts_decodes(&state.slots.items[i]):
            n_longest = max(n_longest, state.slots.items[i].n_guessed)
    if state.drafts.n_fixed >= 0:
        if has_model:
            n_longest = max(n_longest, model_step_fixed(state))
        return min(n_max, state.drafts.n_fixed) if n_longest else 0
    memset(tokens, 0, sizeof(tokens))
    for i in range(state.slots.n):
        if drafts_decodes(&state.slots.items[i]):
            drafts_expect(&state.drafts, &state.slots.items[i], state.plan.has_device, tokens)
    memcpy(text_tokens, tokens, sizeof(tokens))
    if has_model:
        draft_us = model_step_choose(state, tokens, n_slots, n_rows, n_max + 1)
    n = widths_choose(&state.drafts.widths, tokens, n_slots, n_rows, n_max + 1, draft_us,
                      state.drafts.account.is_used) - 1
    if n == 0:
        state.drafts.account.is_used = 0
        if n_max and state.drafts.is_named and widths_plain_us(&state.drafts.widths, n_rows) > 0 and _is_untried(state):
            widths_try(&state.drafts.widths)
            return 1
        return 1 if has_model and model_step_try(state, text_tokens, n_slots, n_rows, n_max + 1, n_max > 0) else 0
    if state.drafts.account.is_used:
        n_longest = max(n_longest, state.drafts.model.n_max)
    elif has_model:
        model_step_try(state, text_tokens, n_slots, n_rows, n_max + 1, 0)
    # A GPU is slow with a new shape, so the shape stays. On a CPU nearly every row costs.
    return n if state.plan.has_device else widths_cheapest(
        &state.drafts.widths, n_rows, 1 + n, 1 + min(n, n_longest)) - 1


cdef void _draft_with_model(State *state) noexcept nogil:
    """Let the draft model draft for the slots that it was chosen for."""
    cdef int32_t i, n_longest = 0
    model_step_draft(state)
    for i in range(state.slots.n):
        if drafts_decodes(&state.slots.items[i]):
            n_longest = max(n_longest, state.slots.items[i].n_guessed)
    if n_longest == 0 or not state.plan.has_device:
        state.plan.n_draft = min(state.plan.n_draft, n_longest)


cdef int draft_step_computes(const State *state) noexcept nogil:
    """Return whether a draft model may compute before the next step."""
    return model_step_computes(state)


cdef void draft_step_plan(State *state) noexcept nogil:
    """Choose how many tokens the next step verifies. Call before the batch is filled."""
    cdef Drafts *drafts = &state.drafts
    cdef Slot *slot
    cdef int32_t i, k, n_slots = 0, n_rows = 0, first = -1, last = -1, has_model, is_mixed = 0
    cdef int64_t now
    cdef double step_us
    # Beside prompts, the last step may have had room for fewer than were planned.
    if drafts.widths.is_mixed:
        drafts.widths.n_rows = drafts.widths.n_plain * (1 + state.plan.n_draft)
    state.plan.n_draft = 0
    if drafts.fn == NULL and drafts.model == NULL:
        return
    now = now_us()
    step_us = widths_learn(&drafts.widths, now - <int64_t>drafts.reading_us, drafts.n_slots, drafts.n_taken,
                           drafts.drafting_us, drafts.account.is_used)
    if drafts.model != NULL:
        model_step_learn(state, step_us)
    drafts.n_slots = drafts.n_taken = 0
    drafts.drafting_us = drafts.reading_us = 0
    has_model = drafts.model != NULL and model_works(drafts.model)
    if has_model:
        model_step_read(state)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        is_mixed |= slot.state == SLOT_PREFILLING and not slot.sits_out
        if drafts_decodes(slot):
            n_slots += 1
            first = i if first < 0 else first
            last = i
    if n_slots:
        n_rows = fillers_bound(&state.plan, &state.slots, first, last, n_slots)
    if n_slots and not drafts.is_refused:
        state.plan.n_draft = _choose(state, n_slots, n_rows, has_model)
        if drafts.account.is_used and state.plan.n_draft:
            _draft_with_model(state)
        for i in range(state.slots.n):
            slot = &state.slots.items[i]
            for k in range(slot.n_guessed, state.plan.n_draft):
                slot.draft[k] = 0
    drafts.is_refused = 0
    widths_planned(&drafts.widths, now, n_rows, 1 + state.plan.n_draft, is_mixed)


# --- after a step -------------------------------------------------------------------------------------------------

cdef void draft_step_follow(State *state) noexcept nogil:
    """Let the drafter take the prompts of this step, while a GPU still computes, so that the first token has a draft. Of
    prompts that were there before, it takes a few pieces in each step."""
    cdef const Slot *slot
    cdef int32_t i, n_left = FOLLOW_PIECES + state.plan.n_prefill_tokens // PIECE_TOKENS
    if state.drafts.follow == NULL or state.plan.n_prefill_tokens == 0:
        return
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if slot.state == SLOT_PREFILLING and slot.n_planned and n_left > 0 and (
                slot.task.command.options.speculative_n_max != 0):
            n_left -= state.drafts.follow(state.drafts.arg, slot, n_left)


cdef void _guess(State *state, Slot *slot, int32_t token, int32_t is_last) noexcept nogil:
    """Judge the drafts by the slot's new token, and make the next one. is_last: its grammar has accepted no other
    token since."""
    cdef Drafts *drafts = &state.drafts
    cdef Clocks *clocks = &drafts.clocks[slot.id]
    cdef int32_t n_max
    slot.n_guessed = 0
    if (drafts.fn == NULL and drafts.model == NULL) or slot.n_tokens >= state.slots.n_ctx:
        return
    n_max = slot.task.command.options.speculative_n_max
    n_max = DRAFT_MAX if n_max < 0 else min(<int32_t>DRAFT_MAX, n_max)
    if drafts.tasks[slot.id] != slot.task.command.id:
        drafts.tasks[slot.id] = slot.task.command.id
        clocks_clear(clocks, &drafts.habit)
        model_step_forget(drafts, slot.id)
    clocks_token(clocks, &drafts.habit, token)
    if drafts.model != NULL:
        model_step_token(drafts, slot, token)
    slot.tokens[slot.n_tokens] = token  # it is decoded next
    if n_max and drafts.fn != NULL:
        slot.n_guessed = drafts.fn(drafts.arg, slot, slot.n_tokens + 1, slot.draft, n_max)
    forced_follow(slot, token, is_last)
    forced_draft(slot, state.pieces, n_max)
    if slot.n_guessed < min(n_max, slot.task.command.options.speculative_n_min):
        slot.n_guessed = 0
    clocks_draft(clocks, slot.draft, slot.n_guessed)
    if not drafts_can_verify(slot):
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
    if state.drafts.model != NULL:
        model_step_verified(&state.drafts, slot, n - 1 + is_deferred, n)
    if slot.n_decoded:  # not the first token after a prompt
        state.drafts.n_taken += n
        state.drafts.n_slots += 1
    for i in range(n):
        if i:
            slot_advance(slot, 1)
        slot.mark = &slot.marks[i]
        take_token(state, slot, slot.samples[i], now)
        if slot.task == NULL:
            break
        _guess(state, slot, slot.samples[i], i == n - 1 and not is_deferred)
    if slot.task != NULL and is_deferred and n:
        slot_advance(slot, 1)  # the row of the deferred token was that of a drafted one
    if slot.n_pos < pos_end:
        state.table.seq_rm(state.ctx, slot.id, slot.n_pos, -1)
        slot.is_rolled_back = state.drafts.n_rollback != 0


cdef void draft_step_take_deferred(State *state, int64_t now) noexcept nogil:
    """Take the tokens that grammar threads have sampled since the last turn."""
    cdef Slot *slot = grammar_pool_next(state.grammar_pool, &state.slots)
    cdef int32_t token
    while slot != NULL:
        token = slot.sampled
        slot.mark = slot.marks
        sampler_mark(slot.sampler, slot.mark)
        take_token(state, slot, token, now)
        if slot.task != NULL:
            _guess(state, slot, token, 1)
        slot = grammar_pool_next(state.grammar_pool, &state.slots)
