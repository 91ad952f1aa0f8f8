# How many tokens a step verifies for each slot: a width is 1 for the next token, and one for each token of the draft.
from libc.stdint cimport int32_t, int64_t

cdef enum:
    WIDTHS = 7               # 1, 2, 4, ..., 64: few, because a GPU computes a shape faster once it has seen it twice
    WIDTH_MAX = 1 << (WIDTHS - 1)
    WIDTH_ROWS_MAX = 512     # rows of a step whose cost is learned
    RUNS = 7                 # classes of runs: 0, 1, 2 to 3, ..., 32 and more tokens

# How often the first token of a draft was right after a run of so many that were right.
ctypedef struct RunShares:
    double n_right[RUNS]
    double n[RUNS]

# For one slot: what each width would have given. A drafter that costs nothing is judged without verifying its drafts:
# they are compared with the tokens that were sampled.
ctypedef struct Clocks:
    int32_t drafts[WIDTHS][WIDTH_MAX]
    int32_t n_drafts[WIDTHS]
    int32_t n_right[WIDTHS]  # tokens of the draft that were right so far
    double tokens[WIDTHS]    # recent tokens, and the steps that they would have taken
    double steps[WIDTHS]
    int32_t first            # the first token of the last draft; -1: there was none
    double n_first_right     # recent drafts whose first token was right, and all recent drafts
    double n_first
    int32_t run              # how many first tokens in a row were right
    RunShares runs

# What the drafts of recent requests gave, with each width: a new request begins with that.
ctypedef struct Habit:
    double tokens[WIDTHS]
    double steps[WIDTHS]
    RunShares runs

ctypedef struct Widths:
    double cost_us[WIDTH_ROWS_MAX + 1]  # of a step, by its rows; 0: unknown
    int32_t n_settling       # steps that a new shape takes longer: a GPU's
    double rows_guess        # what twice the rows cost more, as long as nothing is known
    double switch_us         # what a change of the shape costs
    double credit_us         # what drafting may cost beyond what it has won
    int32_t has_loan         # the credit has what drafting may cost at first
    int32_t width            # index of the current width
    int32_t is_try           # the last step had drafts only because a request has to try one
    int32_t n_rows           # rows of the last step
    int32_t n_plain          # rows that it would have had without drafts: one for each slot and filler
    int32_t n_same           # steps in a row that had as many
    int64_t t_step_us        # when the last step was planned; 0: there was something else between
    int32_t is_mixed         # the last step had prompts, too

cdef void widths_init(Widths *widths, int32_t has_device) noexcept nogil
cdef double widths_credit_max_us(const Widths *widths) noexcept nogil
cdef double widths_learn(Widths *widths, int64_t now, int32_t n_slots, int32_t n_tokens,
                         double drafting_us, int32_t is_paid) noexcept nogil
cdef void widths_planned(Widths *widths, int64_t now, int32_t n_plain, int32_t width, int32_t is_mixed) noexcept nogil
cdef double widths_row_us(const Widths *widths, int32_t n_plain) noexcept nogil
cdef int widths_knows_wider(const Widths *widths, int32_t n_plain) noexcept nogil
cdef double widths_token_us(const Widths *widths, const double *tokens, int32_t n_plain, int32_t n_width_max,
                            double draft_us) noexcept nogil
cdef int32_t widths_choose(Widths *widths, const double *tokens, int32_t n_slots, int32_t n_plain,
                           int32_t n_width_max, double draft_us, int32_t is_paid) noexcept nogil
cdef int32_t widths_cheapest(const Widths *widths, int32_t n_plain, int32_t width, int32_t width_min) noexcept nogil
cdef void widths_try(Widths *widths) noexcept nogil
cdef double widths_plain_us(const Widths *widths, int32_t n_plain) noexcept nogil
cdef void clocks_clear(Clocks *clocks, const Habit *habit) noexcept nogil
cdef void clocks_token(Clocks *clocks, Habit *habit, int32_t token) noexcept nogil
cdef void clocks_draft(Clocks *clocks, const int32_t *draft, int32_t n) noexcept nogil
cdef double clocks_first_right(const Clocks *clocks) noexcept nogil
cdef void clocks_expect(const Clocks *clocks, const Habit *habit, int32_t n_draft, double *tokens) noexcept nogil
cdef void clocks_average(const Clocks *clocks, const Habit *habit, double *tokens) noexcept nogil
