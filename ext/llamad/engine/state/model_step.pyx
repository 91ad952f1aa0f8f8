# Owns: the draft model's part of a step: what it reads, when it drafts, and how its drafts are judged. Runs on the engine
# thread. drafts/model_account.pyx says what it may cost.
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from llamad.base.system cimport now_us
from llamad.engine.costs.drafts cimport (
    ACCEPTANCE_DECAY, ACCEPTANCE_GUESS, ACCEPTANCE_PRIOR, BEHIND_MAX, DRAFT_COST_GUESS, FOLLOW_TOKENS_CPU,
    FOLLOW_TOKENS_GPU, GAIN_MIN, JUDGED_DECAY, JUDGED_MIN, JUDGED_PRIOR, READ_COST_GUESS, READ_LEARN_MIN, TRIAL_DRAFT,
    TRIAL_SHARE, TRIAL_SLOTS, TRIAL_TOKENS,
)
from llamad.engine.drafts.acceptance cimport (
    acceptance_add, acceptance_age, acceptance_judged, acceptance_share, acceptance_tokens,
)
from llamad.engine.drafts.draft_model cimport (
    ModelDrafts, model_behind, model_draft, model_follow, model_forget_cost, model_is_ready, model_n_max, model_works,
)
from llamad.engine.drafts.drafts cimport Drafts, drafts_can_verify, drafts_decodes, drafts_expect
from llamad.engine.drafts.model_account cimport (
    account_budget_us, account_can_try, account_defer, account_end_step, account_judged, account_loan_us, account_open,
    account_pay, account_step, account_try, account_uses, account_want,
)
from llamad.engine.drafts.widths cimport (
    WIDTHS, clocks_first_right, widths_credit_max_us, widths_knows_wider, widths_plain_us, widths_row_us,
    widths_token_us,
)
from llamad.engine.kv.slots cimport DRAFT_MAX, Slot


cdef int model_step_computes(const State *state) noexcept nogil:
    """Return whether the draft model may compute before the next step."""
    cdef const Drafts *drafts = &state.drafts
    return drafts.model != NULL and model_works(drafts.model) and (
        drafts.n_fixed >= 0 or drafts.account.is_wanted or drafts.account.n_left > 0)


# --- the account --------------------------------------------------------------------------------------------------

cdef void model_step_learn(State *state, double step_us) noexcept nogil:
    """Note what the last step took, and what the model took beside it."""
    cdef Drafts *drafts = &state.drafts
    if drafts.reading_us > 0:
        account_pay(&drafts.account, drafts.reading_us)
    if step_us > 0:
        account_step(&drafts.account, step_us, drafts.n_taken, widths_credit_max_us(&drafts.widths))
    drafts.account.is_used = drafts.account.is_used and step_us > 0


cdef double _draft_us(const State *state, int32_t n_rows) noexcept nogil:
    """Return what a decode for one token of each slot takes."""
    return state.drafts.model.draft_us or DRAFT_COST_GUESS * widths_plain_us(&state.drafts.widths, n_rows)


cdef double _read_us(const State *state, int32_t n_rows) noexcept nogil:
    """Return what reading a token takes. It does not take longer if more slots decode, so a guess must not."""
    return state.drafts.model.read_us or READ_COST_GUESS * widths_row_us(&state.drafts.widths, n_rows)


# --- reading ------------------------------------------------------------------------------------------------------

cdef void model_step_read(State *state) noexcept nogil:
    """Let the model read what slots have got: all of them if it is wanted, those of a trial otherwise."""
    cdef Drafts *drafts = &state.drafts
    cdef ModelDrafts *model = drafts.model
    cdef int32_t i, n_max = model.n_batch
    cdef int64_t t_begin = now_us()
    if drafts.n_fixed >= 0 or drafts.account.is_wanted:
        memset(model.is_read, 1, <size_t>model.n_slots)
    elif drafts.account.n_left:
        memcpy(model.is_read, model.is_tried, <size_t>model.n_slots)
    else:
        return
    for i in range(state.slots.n):
        if drafts_decodes(&state.slots.items[i]):
            n_max = FOLLOW_TOKENS_GPU if state.plan.has_device else FOLLOW_TOKENS_CPU
    if drafts.n_fixed < 0:
        if model.read_us > 0:
            n_max = <int32_t>min(<double>n_max, account_budget_us(&drafts.account) / model.read_us)
        elif not state.plan.has_device:
            n_max = READ_LEARN_MIN
    if n_max > BEHIND_MAX and model_follow(model, &state.slots, n_max):
        drafts.reading_us += <double>(now_us() - t_begin)


# --- choosing -----------------------------------------------------------------------------------------------------

cdef double _share(const Drafts *drafts, int32_t i) noexcept nogil:
    """Return the share of the model's tokens that are right in a slot."""
    return acceptance_share(&drafts.accepted_of[i], ACCEPTANCE_PRIOR,
                            acceptance_share(&drafts.accepted, JUDGED_PRIOR, ACCEPTANCE_GUESS))


cdef int _is_drafted_for(const Drafts *drafts, const Slot *slot, double share) noexcept nogil:
    """Return whether a draft of the model is better for the slot than one from text, if this share of its tokens is
    right."""
    if not drafts_decodes(slot) or not drafts_can_verify(slot) or slot.n_forced or (
            model_n_max(drafts.model, slot) == 0):
        return 0
    return slot.n_guessed == 0 or clocks_first_right(&drafts.clocks[slot.id]) < share


cdef void _expect(const State *state, int32_t i, double share, double *tokens) noexcept nogil:
    """Add how many more tokens than from text a slot is expected to get with the model."""
    cdef const Drafts *drafts = &state.drafts
    cdef double text[WIDTHS]
    cdef int32_t k
    memset(text, 0, sizeof(text))
    drafts_expect(drafts, &state.slots.items[i], state.plan.has_device, text)
    for k in range(WIDTHS):
        tokens[k] += max(0.0, acceptance_tokens(share, min(1 << k, 1 + drafts.model.n_max)) - text[k])


cdef double _hoped_us(const State *state, const double *tokens, int32_t n_rows, int32_t n_width_max) noexcept nogil:
    """Return what a token would take with a model that is right as often as a good one."""
    cdef const Drafts *drafts = &state.drafts
    cdef double hoped[WIDTHS]
    cdef int32_t i
    memcpy(hoped, tokens, sizeof(hoped))
    for i in range(state.slots.n):
        if _is_drafted_for(drafts, &state.slots.items[i], TRIAL_SHARE):
            _expect(state, i, TRIAL_SHARE, hoped)
    return widths_token_us(&drafts.widths, hoped, n_rows, n_width_max, _draft_us(state, n_rows))


cdef int32_t _n_unread(State *state) noexcept nogil:
    """Return how many tokens the model would have to read to draft for the slots in is_drafting. Slots that it cannot
    read are removed from these."""
    cdef ModelDrafts *model = state.drafts.model
    cdef int32_t i, n_behind, n = 0
    for i in range(state.slots.n):
        if model.is_drafting[i]:
            n_behind = model_behind(model, &state.slots.items[i], state.slots.items[i].n_tokens)
            model.is_drafting[i] = n_behind >= 0
            n += n_behind if n_behind > BEHIND_MAX else 0
    return n


cdef int32_t model_step_fixed(State *state) noexcept nogil:
    """Choose the slots whose draft is the model's, for steps of a fixed width. Return how many tokens it may draft for
    one of them."""
    cdef Drafts *drafts = &state.drafts
    cdef int32_t i, n_longest = 0
    for i in range(state.slots.n):
        drafts.model.is_drafting[i] = _is_drafted_for(drafts, &state.slots.items[i], _share(drafts, i))
        if drafts.model.is_drafting[i]:
            n_longest = max(n_longest, model_n_max(drafts.model, &state.slots.items[i]))
    drafts.account.is_used = n_longest > 0
    return n_longest


cdef double model_step_choose(State *state, double *tokens, int32_t n_slots, int32_t n_rows,
                              int32_t n_width_max) noexcept nogil:
    """Choose whether the next step is to have drafts of the model (account.is_used), and for which slots (is_drafting).
    tokens are those that steps of each width are expected to give with drafts from text; if the model is used, they
    become those with its drafts. Return what a drafted token takes then."""
    cdef Drafts *drafts = &state.drafts
    cdef ModelDrafts *model = drafts.model
    cdef double all_[WIDTHS]
    cdef double ready[WIDTHS]
    cdef double draft_us = _draft_us(state, n_rows), text_us, model_us, reading_us = 0, switch_us = drafts.widths.switch_us
    cdef int32_t i
    cdef int can_begin = drafts.accepted.n_judged >= JUDGED_MIN, was_used = drafts.account.is_used
    text_us = drafts.account.text_us = widths_token_us(&drafts.widths, tokens, n_rows, n_width_max, 0)
    account_open(&drafts.account, switch_us, widths_plain_us(&drafts.widths, n_rows) / n_slots)
    memcpy(all_, tokens, sizeof(all_))
    memcpy(ready, tokens, sizeof(ready))
    for i in range(state.slots.n):
        model.is_drafting[i] = _is_drafted_for(drafts, &state.slots.items[i], _share(drafts, i))
        if model.is_drafting[i]:
            _expect(state, i, _share(drafts, i), all_)
    model_us = widths_token_us(&drafts.widths, all_, n_rows, n_width_max, draft_us)
    if not drafts.account.is_wanted and can_begin and GAIN_MIN * model_us <= text_us:
        reading_us = _n_unread(state) * _read_us(state, n_rows)
        # As long as it is a guess what wider steps cost, the loan must be enough.
        can_begin = reading_us <= account_loan_us(switch_us, 0) or widths_knows_wider(&drafts.widths, n_rows)
    account_want(&drafts.account, text_us, model_us, n_slots, reading_us, switch_us, can_begin)
    if drafts.account.is_wanted:
        for i in range(state.slots.n):
            model.is_drafting[i] = model.is_drafting[i] and model_is_ready(model, &state.slots.items[i])
            if model.is_drafting[i]:
                _expect(state, i, _share(drafts, i), ready)
        model_us = widths_token_us(&drafts.widths, ready, n_rows, n_width_max, draft_us)
    else:
        model_forget_cost(model, DRAFT_COST_GUESS * widths_plain_us(&drafts.widths, n_rows))
    drafts.account.is_used = account_uses(&drafts.account, text_us, model_us)
    if not drafts.account.is_used:
        if was_used:
            account_pay(&drafts.account, switch_us)  # the change to steps without it
        memset(model.is_drafting, 0, <size_t>model.n_slots)
        return 0
    memcpy(tokens, ready, sizeof(ready))
    return draft_us


# --- trials -------------------------------------------------------------------------------------------------------

cdef int _is_untried(const Slot *slot) noexcept nogil:
    """Return whether the slot's task has to verify a draft, and has had none so far."""
    return slot.n_drafted == 0 and slot.n_guessed == 0


cdef int32_t _choose_tried(State *state, int32_t n_rows, int32_t must_be_untried, double kept_us) noexcept nogil:
    """Choose the slots of a trial, if the account can pay for it and keeps kept_us: those that have the least to read.
    Return how many they are."""
    cdef Drafts *drafts = &state.drafts
    cdef ModelDrafts *model = drafts.model
    cdef double us = kept_us + TRIAL_TOKENS * _draft_us(state, n_rows), read_us = _read_us(state, n_rows)
    cdef int32_t i, n_behind, best, n_best = 0, n
    memset(model.is_tried, 0, <size_t>model.n_slots)
    for n in range(TRIAL_SLOTS):
        best = -1
        for i in range(state.slots.n):
            if model.is_tried[i] or not _is_drafted_for(drafts, &state.slots.items[i], TRIAL_SHARE) or (
                    must_be_untried and not _is_untried(&state.slots.items[i])):
                continue
            n_behind = model_behind(model, &state.slots.items[i], state.slots.items[i].n_tokens)
            if n_behind >= 0 and (best < 0 or n_behind < n_best):
                best = i
                n_best = n_behind
        us += n_best * read_us
        if best < 0 or account_budget_us(&drafts.account) < us:
            return n
        model.is_tried[best] = 1
        model.n_drafts[best] = model.n_right[best] = 0
    return TRIAL_SLOTS


cdef int32_t _ask_tried(State *state) noexcept nogil:
    """Choose the slots of the trial that need another draft. Return how many they are."""
    cdef ModelDrafts *model = state.drafts.model
    cdef const Slot *slot
    cdef int32_t i, n = 0
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        model.is_asked[i] = (model.is_tried[i] and model.n_drafts[i] == 0 and drafts_decodes(slot)
                             and model_is_ready(model, slot))
        n += model.is_asked[i]
    return n


cdef int _verifies(State *state, int32_t n_slots, int32_t n_rows) noexcept nogil:
    """Choose slots of the trial whose task has to verify a draft. Return whether there is one, and the account can pay
    for it."""
    cdef Drafts *drafts = &state.drafts
    cdef int32_t i, is_any = 0
    if not _can_verify(state, n_rows):
        return 0
    for i in range(state.slots.n):
        drafts.model.is_drafting[i] = drafts.model.is_asked[i] and _is_untried(&state.slots.items[i])
        is_any |= drafts.model.is_drafting[i]
    if is_any:
        account_pay(&drafts.account, drafts.widths.switch_us)  # the change back to plain steps
        drafts.account.text_us = widths_plain_us(&drafts.widths, n_rows) / n_slots
        drafts.account.is_used = 1
    return is_any


cdef double _verifying_us(const State *state, int32_t n_rows) noexcept nogil:
    """Return what a single step with a drafted token takes longer, with the change to it and back. Twice the rows take
    at most twice as long."""
    return 2 * state.drafts.widths.switch_us + widths_plain_us(&state.drafts.widths, n_rows)


cdef int _can_verify(const State *state, int32_t n_rows) noexcept nogil:
    """Return whether the account can pay for drafts that hardly pay, only because tasks have to verify one."""
    cdef const Drafts *drafts = &state.drafts
    return (drafts.is_named and not drafts.account.has_loan and drafts.accepted.n_judged >= JUDGED_MIN
            and drafts.account.credit_us >= _verifying_us(state, n_rows))


cdef int _begins_trial(State *state, const double *tokens, int32_t n_rows, int32_t n_width_max) noexcept nogil:
    """Return whether a trial begins: if the model would pay if it were good, and after a pause; without it if a task has
    to verify a draft."""
    cdef Drafts *drafts = &state.drafts
    cdef int32_t i, is_asked = 0, n_tried = 0
    if not account_can_try(&drafts.account, TRIAL_TOKENS * _draft_us(state, n_rows)):
        return 0
    if _can_verify(state, n_rows):
        for i in range(state.slots.n):
            is_asked |= drafts_decodes(&state.slots.items[i]) and _is_untried(&state.slots.items[i])
        if is_asked:
            n_tried = _choose_tried(state, n_rows, 1, _verifying_us(state, n_rows))
    if n_tried == 0 and drafts.account.n_wait == 0 and (
            GAIN_MIN * _hoped_us(state, tokens, n_rows, n_width_max) <= drafts.account.text_us):
        is_asked = 1
        n_tried = _choose_tried(state, n_rows, 0, 0)
    if is_asked and n_tried == 0:
        account_defer(&drafts.account)  # looking at the texts of many slots takes time, too
    return n_tried > 0


cdef int model_step_try(State *state, const double *tokens, int32_t n_slots, int32_t n_rows, int32_t n_width_max,
                        int32_t can_verify) noexcept nogil:
    """Continue a trial, or begin one. Return whether the next step is to verify a draft of it; otherwise its drafts are
    only compared with what is sampled. can_verify: the next step has no drafts otherwise."""
    cdef Drafts *drafts = &state.drafts
    cdef int64_t t_begin
    cdef int32_t n_asked
    account_end_step(&drafts.account)
    if drafts.account.n_left == 0 and _begins_trial(state, tokens, n_rows, n_width_max):
        account_try(&drafts.account)
        drafts.n_run = 0
    n_asked = _ask_tried(state) if drafts.account.n_left else 0
    if n_asked == 0:
        return 0
    if can_verify and _verifies(state, n_slots, n_rows):
        return 1
    t_begin = now_us()
    model_draft(drafts.model, &state.slots, drafts.model.is_asked, min(<int32_t>TRIAL_DRAFT, 1 + drafts.n_run), 0,
                n_asked == n_slots or state.plan.has_device)
    drafts.reading_us += <double>(now_us() - t_begin)
    return 0


cdef void model_step_token(Drafts *drafts, const Slot *slot, int32_t token) noexcept nogil:
    """Compare a sampled token with the slot's draft, if that is only tried."""
    cdef ModelDrafts *model = drafts.model
    cdef int32_t i = slot.id, is_right
    if not model.is_tried[i] or model.n_drafts[i] == 0:
        return
    is_right = model.drafts[i * DRAFT_MAX + model.n_right[i]] == token
    model.n_right[i] += is_right
    drafts.n_run = drafts.n_run + 1 if is_right else 0
    if not is_right or model.n_right[i] == model.n_drafts[i]:
        model.n_drafts[i] = model.n_right[i] = 0
    acceptance_age(&drafts.accepted, JUDGED_DECAY, 1)
    acceptance_add(&drafts.accepted, is_right, 1)
    acceptance_add(&drafts.accepted_of[i], is_right, 1)
    account_judged(&drafts.account, 1)


cdef void model_step_forget(Drafts *drafts, int32_t slot) noexcept nogil:
    """Note that the slot has another task."""
    drafts.accepted_of[slot].n_right = drafts.accepted_of[slot].n_judged = 0
    if drafts.model != NULL:
        drafts.model.is_tried[slot] = 0
        drafts.model.n_drafts[slot] = drafts.model.n_right[slot] = 0


# --- drafts that are verified -------------------------------------------------------------------------------------

cdef void model_step_draft(State *state) noexcept nogil:
    """Let the model draft for the slots in is_drafting; it stays set for those with a draft."""
    cdef ModelDrafts *model = state.drafts.model
    cdef Slot *slot
    cdef int64_t t_begin = now_us()
    cdef int32_t i
    memcpy(model.is_asked, model.is_drafting, <size_t>model.n_slots)
    model_draft(model, &state.slots, model.is_asked, min(state.plan.n_draft, model.n_max), model.n_settling, 1)
    state.drafts.drafting_us += <double>(now_us() - t_begin)
    for i in range(state.slots.n):
        slot = &state.slots.items[i]
        model.is_drafting[i] = model.is_asked[i] and model.n_drafts[i] > 0
        if model.is_drafting[i]:
            slot.n_guessed = model.n_drafts[i]
            memcpy(slot.draft, model.drafts + i * DRAFT_MAX, <size_t>slot.n_guessed * sizeof(int32_t))
            model.n_drafts[i] = 0


cdef void model_step_verified(Drafts *drafts, const Slot *slot, int32_t n_right, int32_t n_tokens) noexcept nogil:
    """Note that a step gave the slot n_tokens, and if it verified a draft of the model, how good that was."""
    cdef int32_t n_judged
    if slot.n_draft and drafts.model.is_drafting[slot.id]:
        n_judged = acceptance_judged(n_right, slot.n_draft)
        acceptance_age(&drafts.accepted, JUDGED_DECAY, n_judged)
        acceptance_add(&drafts.accepted, n_right, slot.n_draft)
        acceptance_add(&drafts.accepted_of[slot.id], n_right, slot.n_draft)
        account_judged(&drafts.account, n_judged)
    acceptance_age(&drafts.accepted_of[slot.id], ACCEPTANCE_DECAY, n_tokens)
