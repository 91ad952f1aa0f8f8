# Owns: the account of a draft model, and the choice whether it is used. Runs on the engine thread.
#
# Drafts from text cost nothing until they are verified; a draft model takes time to read and to draft. So it has an
# account of its own, which is compared with steps without the model, not with steps without any drafts: what right
# drafts from text win does not pay for a model that is wrong.
#
# - A model that is not known is tried: it reads one or a few slots, and its drafts are compared with the tokens that are
#   sampled anyway. No step verifies them, so steps stay as they are. A loan pays for the first trial; what is left of it
#   is given back then, and later trials take what has come together since.
# - A model that was right often enough is wanted: it reads the other slots, too. That may take more than the account
#   holds, because it was right on tokens of this text; but if it does not win that back, it has to wait until the
#   account is balanced again.
# - A model that is not wanted does nothing until its next trial. Pauses between trials become longer.
from libc.stdint cimport int32_t

from llamad.engine.costs.drafts cimport (
    GAIN_MIN, HORIZON_TOKENS, LOAN_SWITCHES, LOAN_TOKENS, MODEL_LOSS_PART, READING_HORIZON_TOKENS, TRIAL_PAUSE_MAX,
    TRIAL_PAUSE_MIN, TRIAL_STEPS, TRIAL_TOKENS, TRIAL_WAIT,
)


cdef double account_loan_us(double switch_us, double token_us) noexcept nogil:
    """Return what the account begins with. A token takes token_us without drafts."""
    return max(LOAN_SWITCHES * switch_us, LOAN_TOKENS * token_us)


cdef void account_open(ModelAccount *account, double switch_us, double token_us) noexcept nogil:
    """Give the loan, once it is known how long a token takes without drafts: what it takes to try the model."""
    if not account.is_open and token_us > 0:
        account.is_open = 1
        account.has_loan = 1
        account.credit_us = account_loan_us(switch_us, token_us)
        account.n_wait = TRIAL_WAIT
        account.n_pause = TRIAL_PAUSE_MIN


cdef void account_pay(ModelAccount *account, double us) noexcept nogil:
    """Pay for time in which the model read, or drafted in a trial."""
    account.credit_us -= us


cdef void account_step(ModelAccount *account, double step_us, int32_t n_tokens, double credit_max_us) noexcept nogil:
    """Note how long the last step took, with the drafts that it verified, and how many tokens it gave."""
    if account.is_used:
        account.credit_us += (1 + MODEL_LOSS_PART) * n_tokens * account.text_us - step_us
    else:
        account.credit_us += MODEL_LOSS_PART * step_us
    account.credit_us = min(account.credit_us, credit_max_us)


cdef double account_budget_us(const ModelAccount *account) noexcept nogil:
    """Return how long the model may read now."""
    return account.credit_us + (account.overdraft_us if account.is_wanted else 0)


cdef void account_want(ModelAccount *account, double text_us, double model_us, int32_t n_slots, double reading_us,
                       double switch_us, int32_t can_begin) noexcept nogil:
    """Choose whether the model is wanted. A token takes text_us without it and model_us with it, if it has read all
    slots; it still has to read for reading_us. can_begin: it was judged, and steps can be made wider."""
    cdef double saved_us = n_slots * (text_us - model_us)
    if account.is_wanted:
        account.is_wanted = model_us < text_us and account.credit_us >= -account.overdraft_us
    elif can_begin and account.credit_us >= -LOAN_SWITCHES * switch_us and GAIN_MIN * model_us <= text_us and (
            HORIZON_TOKENS * saved_us > switch_us and READING_HORIZON_TOKENS * saved_us > switch_us + reading_us):
        account.is_wanted = 1
        account.overdraft_us = reading_us + 2 * LOAN_SWITCHES * switch_us
        account.n_left = 0
        account.n_pause = TRIAL_PAUSE_MIN


cdef int account_uses(const ModelAccount *account, double text_us, double model_us) noexcept nogil:
    """Return whether the next step is to have drafts of the model. A token takes text_us without it and model_us with
    it, for the slots that it has read."""
    return account.is_wanted and (1 if account.is_used else GAIN_MIN) * model_us <= text_us


# --- trials -------------------------------------------------------------------------------------------------------

cdef int account_can_try(const ModelAccount *account, double us) noexcept nogil:
    """Return whether a trial that takes this long may begin, but for the pause since the last one."""
    return account.is_open and not account.is_wanted and account.n_left == 0 and account.n_deferred == 0 and (
        account.credit_us >= us)


cdef void account_defer(ModelAccount *account) noexcept nogil:
    """Note that no trial could begin: for some steps none is asked for again."""
    account.n_deferred = TRIAL_WAIT


cdef void account_try(ModelAccount *account) noexcept nogil:
    account.n_left = TRIAL_TOKENS
    account.n_steps = TRIAL_STEPS


cdef void account_judged(ModelAccount *account, int32_t n) noexcept nogil:
    """Note that n tokens of the model were judged."""
    if account.n_left:
        account.n_left = max(0, account.n_left - n)
        if account.n_left == 0:
            if account.has_loan:
                account.has_loan = 0
                account.credit_us = min(account.credit_us, 0.0)
            account.n_wait = account.n_pause
            account.n_pause = min(2 * account.n_pause, <int32_t>TRIAL_PAUSE_MAX)


cdef void account_end_step(ModelAccount *account) noexcept nogil:
    """Note that a step is planned. A trial that takes too many, because the model drafts nothing, is over."""
    account.n_wait = max(0, account.n_wait - 1)
    account.n_deferred = max(0, account.n_deferred - 1)
    if account.n_left:
        account.n_steps -= 1
        if account.n_steps <= 0:
            account_judged(account, account.n_left)
