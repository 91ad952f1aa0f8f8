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

from llamad.base.system cimport load_int, now_us
from llamad.engine.costs.drafts cimport ACCEPTANCE_GUESS, DRAFT_COST_GUESS, FOLLOW_PIECES, FOLLOW_TOKENS, TRY_SWITCHES
from llamad.engine.drafts.acceptance cimport acceptance_add, acceptance_age, acceptance_share, acceptance_tokens
from llamad.engine.drafts.draft_model cimport (
    model_draft, model_follow, model_forget_cost, model_is_ready, model_n_max, model_reading_us, model_works,
)
from llamad.engine.drafts.drafts cimport Drafts
from llamad.engine.drafts.forced_text cimport forced_draft, forced_follow
from llamad.engine.drafts.match_finder cimport PIECE_TOKENS
from llamad.engine.drafts.widths cimport (
    WIDTHS, Clocks, clocks_clear, clocks_draft, clocks_expect, clocks_first_right, clocks_token, clocks_tokens,
    widths_choose, widths_learn, widths_plain_us, widths_planned, widths_try,
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
    """Return how many drafted tokens each of the slots has room for, and can be removed from it again. Fillers have as
    many as those that decode."""
    cdef const Slot *slot
    cdef int32_t i, n = min(<int32_t>DRAFT_MAX, min(state.plan.rows_max, state.plan.ubatch) // n_slots - 1)
    if state.drafts.n_rollback:
        n = min(n, state.drafts.n_rollback)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if _decodes(slot):
            n = min(n, state.slots.n_ctx - slot.n_tokens - 2)
    while n > 0 and not cells_fit(&state.slots, n_slots * (1 + n)):
        n //= 2
    return max(0, n)


cdef double _model_share(const Drafts *drafts, int32_t i) noexcept nogil:
    """Return the share of the draft model's tokens that are right in a slot."""
    return acceptance_share(&drafts.accepted_of[i], acceptance_share(&drafts.accepted, ACCEPTANCE_GUESS))


cdef int32_t _choose_model(State *state) noexcept nogil:
    """Choose the slots whose draft is the model's: those without one from text, and those where the model is right more
    often. Return how many tokens it may draft for one of them."""
    cdef Drafts *drafts = &state.drafts
    cdef const Slot *slot
    cdef int32_t i, n_max, n_longest = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        drafts.model.is_drafting[i] = 0
        if not _decodes(slot) or not _can_draft(slot) or slot.n_forced:
            continue
        n_max = model_n_max(drafts.model, slot)
        drafts.model.is_drafting[i] = n_max > 0 and (
            slot.n_guessed == 0 or clocks_first_right(&drafts.clocks[i]) < _model_share(drafts, i))
        if drafts.model.is_drafting[i]:
            n_longest = max(n_longest, n_max)
    return n_longest


cdef void _expect(const State *state, int32_t i, double *tokens) noexcept nogil:
    """Add how many tokens steps of each width are expected to give a slot."""
    cdef const Drafts *drafts = &state.drafts
    cdef int32_t k, n_width
    cdef double share
    if drafts.model == NULL or not drafts.model.is_drafting[i]:
        if not state.plan.has_device:
            clocks_expect(&drafts.clocks[i], &drafts.habit, state.slots.items[i].n_guessed, tokens)
            return
        for k in range(WIDTHS):
            tokens[k] += clocks_tokens(&drafts.clocks[i], k)
        return
    share = _model_share(drafts, i)
    for k in range(WIDTHS):
        n_width = min(1 << k, 1 + drafts.model.n_max)
        tokens[k] += max(acceptance_tokens(share, n_width), clocks_tokens(&drafts.clocks[i], k))


cdef int _is_untried(const State *state, int32_t has_model) noexcept nogil:
    """Return whether a slot has a draft, or the model would make one, whose task has verified none so far."""
    cdef const Slot *slot
    cdef int32_t i
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        if _decodes(slot) and slot.n_drafted == 0 and (
                slot.n_guessed or (has_model and state.drafts.model.is_drafting[i]
                                   and model_is_ready(state.drafts.model, slot))):
            return 1
    return 0


cdef int32_t _choose(State *state, int32_t n_slots, int32_t n_rows, int32_t n_longest,
                     int32_t has_model) noexcept nogil:
    """Return how many drafted tokens each decoding slot gets; the longest draft is n_longest. With fillers a step
    without drafts has n_rows. has_model: the draft model would draft for some of them."""
    cdef double tokens[WIDTHS]
    cdef double draft_us = 0, expected_us = 0
    cdef int32_t i, k, n, n_max = _n_draft_max(state, n_rows)
    if state.drafts.n_fixed >= 0:
        return min(n_max, state.drafts.n_fixed) if n_longest else 0
    for k in range(WIDTHS):
        tokens[k] = 0
    for i in range(state.slots.n):
        if _decodes(&state.slots.items[i]):
            _expect(state, i, tokens)
    if has_model:
        expected_us = DRAFT_COST_GUESS * widths_plain_us(&state.drafts.widths, n_rows)
        draft_us = state.drafts.model.draft_us if state.drafts.model.draft_us else expected_us
    n = widths_choose(&state.drafts.widths, tokens, n_slots, n_rows, n_max + 1, draft_us) - 1
    if n == 0 and has_model:
        model_forget_cost(state.drafts.model, expected_us)
    if n == 0 and n_max and state.drafts.is_named and widths_plain_us(&state.drafts.widths, n_rows) > 0 and (
            _is_untried(state, has_model)):
        widths_try(&state.drafts.widths)
        return 1
    # A GPU is slow with a new shape, so the shape stays. On a CPU every row costs.
    return n if state.plan.has_device else min(n, n_longest)


cdef int _can_read(const State *state) noexcept nogil:
    """Return whether the ledger can pay for what an idle draft model has to read before it drafts again."""
    cdef const Drafts *drafts = &state.drafts
    cdef double need_us
    if not drafts.model.is_idle:
        return 1
    need_us = model_reading_us(drafts.model, &state.slots)
    return drafts.widths.credit_us >= TRY_SWITCHES * drafts.widths.switch_us + need_us


cdef void _note_use(State *state, int32_t n_rows) noexcept nogil:
    """Note whether the draft model is used in the next step. One that was idle has something to read first."""
    cdef Drafts *drafts = &state.drafts
    if state.plan.n_draft == 0 or drafts.widths.is_try:
        drafts.model.is_idle |= widths_plain_us(&drafts.widths, n_rows) > 0
    elif drafts.model.is_idle:
        drafts.model.is_idle = 0
        drafts.widths.credit_us -= model_reading_us(drafts.model, &state.slots)


cdef void _follow(State *state) noexcept nogil:
    """Let the draft model read what slots have got."""
    cdef int32_t i, n_max = state.drafts.model.n_batch, is_decoding = 0
    cdef int64_t t_begin = now_us()
    for i in range(state.slots.n):
        is_decoding |= _decodes(&state.slots.items[i])
    if model_follow(state.drafts.model, &state.slots, FOLLOW_TOKENS if is_decoding else n_max, is_decoding):
        state.drafts.reading_us += <double>(now_us() - t_begin)


cdef void _draft_with_model(State *state, int32_t n_longest) noexcept nogil:
    """Let the draft model draft for the slots that it was chosen for. The longest draft from text is n_longest."""
    cdef int64_t t_begin = now_us()
    cdef int32_t i
    model_draft(state.drafts.model, &state.slots, min(state.plan.n_draft, state.drafts.model.n_max))
    state.drafts.drafting_us += <double>(now_us() - t_begin)
    for i in range(state.slots.n):
        n_longest = max(n_longest, state.slots.items[i].n_guessed if _decodes(&state.slots.items[i]) else 0)
    if n_longest == 0 or not state.plan.has_device:
        state.plan.n_draft = min(state.plan.n_draft, n_longest)


cdef int draft_step_computes(const State *state) noexcept nogil:
    """Return whether a draft model may compute before the next step."""
    return state.drafts.model != NULL and model_works(state.drafts.model) and (
        not state.drafts.model.is_idle or state.drafts.model.tries)


cdef void draft_step_plan(State *state) noexcept nogil:
    """Choose how many tokens the next step verifies. Call before the batch is filled."""
    cdef Drafts *drafts = &state.drafts
    cdef Slot *slot
    cdef int32_t i, k, n_slots = 0, n_rows = 0, first = -1, last = -1, n_longest = 0, n_model = 0, has_model
    cdef int32_t is_mixed = 0, is_affordable = 0
    cdef int64_t now
    # Beside prompts, the last step may have had room for fewer than were planned.
    if drafts.widths.is_mixed:
        drafts.widths.n_rows = drafts.widths.n_plain * (1 + state.plan.n_draft)
    state.plan.n_draft = 0
    if drafts.fn == NULL and drafts.model == NULL:
        return
    now = now_us()
    widths_learn(&drafts.widths, now - <int64_t>drafts.reading_us, drafts.n_slots, drafts.n_taken, drafts.drafting_us)
    drafts.n_slots = drafts.n_taken = 0
    drafts.drafting_us = drafts.reading_us = 0
    has_model = drafts.model != NULL and model_works(drafts.model)
    if has_model:
        is_affordable = _can_read(state)
        drafts.model.tries = drafts.is_named and is_affordable
        _follow(state)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        is_mixed |= slot.state == SLOT_PREFILLING and not slot.sits_out
        if _decodes(slot):
            n_slots += 1
            first = i if first < 0 else first
            last = i
            n_longest = max(n_longest, slot.n_guessed)
    if n_slots:
        n_rows = fillers_bound(&state.plan, &state.slots, first, last, n_slots)
    if n_slots and not drafts.is_refused:
        if has_model and is_affordable:
            n_model = _choose_model(state)
        state.plan.n_draft = _choose(state, n_slots, n_rows, max(n_longest, n_model), n_model > 0)
        if n_model:
            _note_use(state, n_rows)
        if n_model and state.plan.n_draft:
            _draft_with_model(state, n_longest)
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
        drafts.accepted_of[slot.id].n_right = drafts.accepted_of[slot.id].n_judged = 0
    clocks_token(clocks, &drafts.habit, token)
    slot.tokens[slot.n_tokens] = token  # it is decoded next
    if n_max and drafts.fn != NULL:
        slot.n_guessed = drafts.fn(drafts.arg, slot, slot.n_tokens + 1, slot.draft, n_max)
    forced_follow(slot, token, is_last)
    forced_draft(slot, state.pieces, n_max)
    if slot.n_guessed < min(n_max, slot.task.command.options.speculative_n_min):
        slot.n_guessed = 0
    clocks_draft(clocks, slot.draft, slot.n_guessed)
    if not _can_draft(slot):
        slot.n_guessed = 0


cdef void _judge_model(Drafts *drafts, const Slot *slot, int32_t n_right, int32_t n_tokens) noexcept nogil:
    """Note how good the draft model's draft was, if the step verified one of it."""
    if drafts.model == NULL:
        return
    if slot.n_draft and drafts.model.is_drafting[slot.id]:
        acceptance_add(&drafts.accepted, n_right, slot.n_draft)
        acceptance_add(&drafts.accepted_of[slot.id], n_right, slot.n_draft)
    acceptance_age(&drafts.accepted, n_tokens)
    acceptance_age(&drafts.accepted_of[slot.id], n_tokens)


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
    _judge_model(&state.drafts, slot, n - 1 + is_deferred, n)
    if slot.n_decoded:  # not the first token after a prompt
        state.drafts.n_taken += n
        state.drafts.n_slots += 1
    for i in range(n):
        if i:
            slot_advance(slot, 1)
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
        take_token(state, slot, token, now)
        if slot.task != NULL:
            _guess(state, slot, token, 1)
        slot = grammar_pool_next(state.grammar_pool, &state.slots)
