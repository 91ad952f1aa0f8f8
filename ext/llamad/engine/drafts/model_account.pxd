# What a draft model may cost, apart from what drafts from text win.
from libc.stdint cimport int32_t

ctypedef struct ModelAccount:
    int32_t is_open          # it has had its loan
    int32_t has_loan         # the first trial is not over, so some of it may be left
    double credit_us         # what the model may cost beyond what it has won
    double overdraft_us      # how far below 0 that may fall: what reading takes for a model that was right
    double text_us           # what a token would have taken in the last step without the model
    int32_t is_wanted        # its drafts seem to pay, so that it reads what slots get
    int32_t is_used          # the last step verified drafts of it
    int32_t n_left           # tokens that a trial still has to judge; 0: there is no trial
    int32_t n_steps          # steps that the trial may still take
    int32_t n_pause          # steps between two trials
    int32_t n_wait           # steps until the next trial
    int32_t n_deferred       # steps until it is checked again whether a trial can begin

cdef double account_loan_us(double switch_us, double token_us) noexcept nogil
cdef void account_open(ModelAccount *account, double switch_us, double token_us) noexcept nogil
cdef void account_pay(ModelAccount *account, double us) noexcept nogil
cdef void account_step(ModelAccount *account, double step_us, int32_t n_tokens, double credit_max_us) noexcept nogil
cdef double account_budget_us(const ModelAccount *account) noexcept nogil
cdef void account_want(ModelAccount *account, double text_us, double model_us, int32_t n_slots, double reading_us,
                       double switch_us, int32_t can_begin) noexcept nogil
cdef int account_uses(const ModelAccount *account, double text_us, double model_us) noexcept nogil
cdef int account_can_try(const ModelAccount *account, double us) noexcept nogil
cdef void account_defer(ModelAccount *account) noexcept nogil
cdef void account_try(ModelAccount *account) noexcept nogil
cdef void account_judged(ModelAccount *account, int32_t n) noexcept nogil
cdef void account_end_step(ModelAccount *account) noexcept nogil
