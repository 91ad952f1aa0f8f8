# Owns: the choice of a width, from what steps cost and how often drafts are right, and the ledger that bounds what a
# wrong choice may cost. Runs on the engine thread.
#
# The ledger compares the time of every step with what its tokens would have taken without drafts. Drafting may use what
# it has won and LOSS_PART of the time; if that is spent, steps are plain until enough has come together again.
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from llamad.engine.costs.drafts cimport (
    CLOCK_DECAY, CLOCK_PRIOR, COST_LEARN_RATE, COST_OUTLIER, CREDIT_STEPS_MAX, CREDIT_SWITCHES_MAX,
    GAIN_MIN, HABIT_DECAY, HABIT_PRIOR, HABIT_RUN_DECAY, HORIZON_TOKENS, LIKELY_MIN, LOAN_TOKENS, LOSS_PART,
    ROWS_COST_GUESS_CPU, ROWS_COST_GUESS_GPU, RUN_DECAY, RUN_PRIOR, SETTLING_STEPS_GPU, STEP_OUTLIER,
    SWITCH_LEARN_RATE, SWITCH_US_CPU, SWITCH_US_GPU,
)


cdef void widths_init(Widths *widths, int32_t has_device) noexcept nogil:
    memset(widths, 0, sizeof(Widths))
    widths.n_settling = SETTLING_STEPS_GPU if has_device else 0
    widths.switch_us = SWITCH_US_GPU if has_device else SWITCH_US_CPU
    widths.rows_guess = ROWS_COST_GUESS_GPU if has_device else ROWS_COST_GUESS_CPU
    widths.credit_us = 2 * widths.switch_us


# --- costs --------------------------------------------------------------------------------------------------------

cdef double _cost(const Widths *widths, int32_t n_rows) noexcept nogil:
    """Return the cost of a step with this many rows: learned, or between its neighbours, or a guess. 0: unknown."""
    cdef int32_t below = min(n_rows, <int32_t>WIDTH_ROWS_MAX), above
    n_rows = below
    while below > 0 and widths.cost_us[below] == 0:
        below -= 1
    if below == 0 or below == n_rows:
        return widths.cost_us[below]
    above = n_rows + 1
    while above <= WIDTH_ROWS_MAX and widths.cost_us[above] == 0:
        above += 1
    if above > WIDTH_ROWS_MAX:
        return widths.cost_us[below] * (1 + widths.rows_guess * (<double>n_rows / below - 1))
    return widths.cost_us[below] + (widths.cost_us[above] - widths.cost_us[below]) * (n_rows - below) / (above - below)


cdef void _learn_cost(Widths *widths, double step_us) noexcept nogil:
    """Learn from a step whose shape was that of the steps before. One that took far longer had another reason."""
    cdef double *cost = &widths.cost_us[min(widths.n_rows, <int32_t>WIDTH_ROWS_MAX)]
    # The first step may have been interrupted, and drafts would then be compared with a cost that nothing has.
    if cost[0] == 0 or step_us < cost[0] / 2:
        cost[0] = step_us
    else:
        step_us = min(step_us, cost[0] * (1 + COST_OUTLIER))
        step_us = max(step_us, cost[0] * (1 - COST_OUTLIER))
        cost[0] += COST_LEARN_RATE * (step_us - cost[0])


cdef void _learn_switch(Widths *widths, double step_us, double cost) noexcept nogil:
    """Learn what a change costs, from one of the first steps of a shape: each has its share of it."""
    cdef double extra_us = max(0.0, step_us - cost) * widths.n_settling
    widths.switch_us += SWITCH_LEARN_RATE * (min(extra_us, 4 * widths.switch_us + 1) - widths.switch_us)


cdef void _charge(Widths *widths, double credit_us) noexcept nogil:
    """Set the credit after something that had to be done; drafts that pay keep what they need to begin."""
    widths.credit_us = max(credit_us, min(widths.credit_us, 2 * widths.switch_us))


cdef void _account(Widths *widths, double step_us, int32_t n_slots, int32_t n_tokens) noexcept nogil:
    """Compare the step with what its tokens would have taken without drafts."""
    cdef double plain_us = _cost(widths, widths.n_plain), gain_us
    if plain_us <= 0:
        return
    if not widths.has_loan:
        widths.has_loan = 1
        widths.credit_us += LOAN_TOKENS * plain_us / n_slots
    if widths.n_rows == widths.n_plain:
        _charge(widths, widths.credit_us + LOSS_PART * plain_us)
    else:
        step_us = min(step_us, STEP_OUTLIER * _cost(widths, widths.n_rows))
        gain_us = (1 + LOSS_PART) * n_tokens * plain_us / n_slots - step_us
        if widths.is_try:
            _charge(widths, widths.credit_us + gain_us)
        else:
            widths.credit_us += gain_us
    widths.credit_us = min(widths.credit_us, widths_credit_max_us(widths))


cdef double widths_credit_max_us(const Widths *widths) noexcept nogil:
    """Return the most that a ledger holds, with the rows of the last step."""
    return CREDIT_SWITCHES_MAX * widths.switch_us + CREDIT_STEPS_MAX * _cost(widths, widths.n_plain)


cdef double widths_learn(Widths *widths, int64_t now, int32_t n_slots, int32_t n_tokens,
                         double drafting_us, int32_t is_paid) noexcept nogil:
    """Note that the last step is over: it gave n_tokens to n_slots. Before it, a draft model took drafting_us, to draft
    for it. is_paid: the model's account pays for the step, not the ledger. Return how long it took, as far as drafts are
    to blame; 0: unknown."""
    cdef double step_us = <double>(now - widths.t_step_us)
    cdef double cost = widths.cost_us[min(widths.n_rows, <int32_t>WIDTH_ROWS_MAX)]
    if n_slots == 0 or (widths.t_step_us == 0 and not widths.is_mixed):
        widths.is_try = 0
        return 0
    if widths.is_mixed:
        # Its time is mostly that of the prompts. What its rows would have taken without them is known, or guessed.
        step_us = drafting_us + _cost(widths, widths.n_rows)
        if not is_paid:
            _account(widths, step_us, n_slots, n_tokens)
        widths.is_try = 0
        return step_us
    if widths.n_same >= widths.n_settling:
        _learn_cost(widths, max(1.0, step_us - drafting_us))
    elif cost > 0:
        _learn_switch(widths, step_us - drafting_us, cost)
    if not is_paid:
        _account(widths, step_us, n_slots, n_tokens)
    widths.is_try = 0
    return min(step_us, drafting_us + STEP_OUTLIER * _cost(widths, widths.n_rows))


cdef void widths_planned(Widths *widths, int64_t now, int32_t n_plain, int32_t width, int32_t is_mixed) noexcept nogil:
    """Note that a step begins, with n_plain slots and fillers of this width; 0: only prompts. If is_mixed, there may be
    prompts beside them: its shape is new, and nothing can be learned from it."""
    cdef int32_t n_rows = n_plain * width
    if is_mixed:
        widths.n_same = widths.n_settling  # as far as it matters, no shape has to settle
    elif n_rows == widths.n_rows and not widths.is_mixed:
        widths.n_same += 1
    else:
        widths.n_same = 0
    widths.n_rows = n_rows
    widths.n_plain = n_plain
    widths.is_mixed = is_mixed
    widths.t_step_us = now if n_rows and not is_mixed else 0


# --- choosing -----------------------------------------------------------------------------------------------------

cdef int32_t _steps_us(const Widths *widths, int32_t n_plain, int32_t n_width_max, double draft_us,
                       double *steps_us) noexcept nogil:
    """Compute what a step of each width takes, with its draft. Return how many are known. On a GPU more rows never take
    less, whatever was measured; on a CPU 64 rows can take less than 32 (FLASH_TILE)."""
    cdef double cost = 0
    cdef int32_t i
    for i in range(WIDTHS):
        cost = max(cost if widths.n_settling else 0.0, _cost(widths, n_plain << i))
        if 1 << i > n_width_max or cost <= 0:
            return i
        steps_us[i] = cost + draft_us * ((1 << i) - 1)
    return WIDTHS


cdef double widths_plain_us(const Widths *widths, int32_t n_plain) noexcept nogil:
    """Return what a step without drafts takes; 0: unknown."""
    return _cost(widths, n_plain)


cdef double widths_row_us(const Widths *widths, int32_t n_plain) noexcept nogil:
    """Return what a step of a single row would take, guessed from what n_plain rows take; 0: unknown."""
    return _cost(widths, n_plain) / (1 + widths.rows_guess * (n_plain - 1))


cdef int widths_knows_wider(const Widths *widths, int32_t n_plain) noexcept nogil:
    """Return whether it was measured what more than n_plain rows cost."""
    cdef int32_t i
    for i in range(n_plain + 1, WIDTH_ROWS_MAX + 1):
        if widths.cost_us[i] > 0:
            return 1
    return 0


cdef double widths_token_us(const Widths *widths, const double *tokens, int32_t n_plain, int32_t n_width_max,
                            double draft_us) noexcept nogil:
    """Return what a token takes with the best width; 0: unknown. The parameters are those of widths_choose()."""
    cdef double steps_us[WIDTHS]
    cdef double best_us = 0
    cdef int32_t i
    for i in range(_steps_us(widths, n_plain, n_width_max, draft_us, steps_us)):
        if i == 0 or (steps_us[i] < best_us * tokens[i] and tokens[i] >= GAIN_MIN * tokens[0]):
            best_us = steps_us[i] / tokens[i]
    return best_us


cdef int32_t widths_choose(Widths *widths, const double *tokens, int32_t n_slots, int32_t n_plain,
                           int32_t n_width_max, double draft_us, int32_t is_paid) noexcept nogil:
    """Return the width of the next step, at most n_width_max. tokens[i] is how many tokens a step of the i-th width is
    expected to give the n_slots; n_plain are the rows of a step of width 1. Each drafted token takes draft_us. is_paid:
    the account of a draft model pays for the step, not the ledger."""
    cdef double rate, best_rate = 0, now_rate, saved_us
    cdef double steps_us[WIDTHS]
    cdef int32_t i, best = 0, n_known = _steps_us(widths, n_plain, n_width_max, draft_us, steps_us)
    # A step whose draft is wrong takes the time of one token. The ledger must have the rest.
    while not is_paid and n_known > 1 and steps_us[n_known - 1] - steps_us[0] > widths.credit_us:
        n_known -= 1
    for i in range(n_known):
        rate = tokens[i] / steps_us[i]
        if i and tokens[i] < GAIN_MIN * tokens[0]:
            continue  # drafts that are hardly ever right; costs are not known well enough for that
        if rate > best_rate:
            best_rate = rate
            best = i
    while widths.width and (1 << widths.width > n_width_max or 0 < n_known <= widths.width):
        widths.width -= 1
        if widths.width == 0 and not is_paid:
            widths.credit_us -= widths.switch_us
    # The first steps of a width are those of the change, which was paid for before.
    if widths.width and not is_paid and widths.credit_us < widths.switch_us and widths.n_same >= widths.n_settling:
        widths.credit_us -= widths.switch_us
        widths.width = 0
        return 1
    # The first steps of a width say nothing of its cost.
    if best == widths.width or widths.width >= n_known or (widths.width and widths.n_same < widths.n_settling):
        return 1 << widths.width
    if best == 0 and tokens[widths.width] < GAIN_MIN * tokens[0] and widths.n_settling == 0:
        widths.width = 0  # a change costs a CPU nothing
        return 1
    now_rate = tokens[widths.width] / steps_us[widths.width]
    saved_us = HORIZON_TOKENS * n_slots * (1 / now_rate - 1 / best_rate)
    if best_rate >= GAIN_MIN * now_rate and saved_us > widths.switch_us and (
            widths.width or is_paid or widths.credit_us >= 2 * widths.switch_us):
        if best == 0 and not is_paid:
            widths.credit_us -= widths.switch_us
        widths.width = best
    return 1 << widths.width


cdef int32_t widths_cheapest(const Widths *widths, int32_t n_plain, int32_t width, int32_t width_min) noexcept nogil:
    """Return width_min, which is enough for a draft, or the chosen width if that takes less time or was not measured
    yet."""
    cdef int32_t n_rows = n_plain * width
    if width <= width_min or n_rows > WIDTH_ROWS_MAX:
        return min(width, width_min)
    if widths.cost_us[n_rows] == 0 or widths.cost_us[n_rows] < _cost(widths, n_plain * width_min):
        return width
    return width_min


cdef void widths_try(Widths *widths) noexcept nogil:
    """Note that the next step has drafts although they may not pay, because a request has to try one. The ledger pays
    for it and for the change back to plain steps, but keeps what drafts that pay need to begin: otherwise many short
    requests would keep them from it."""
    widths.is_try = 1
    _charge(widths, widths.credit_us - widths.switch_us)


# --- clocks -------------------------------------------------------------------------------------------------------

cdef void clocks_clear(Clocks *clocks, const Habit *habit) noexcept nogil:
    """Begin with another text. Nothing is known of its drafts, but a client often sends texts of one kind."""
    cdef int32_t i
    memset(clocks, 0, sizeof(Clocks))
    clocks.first = -1
    for i in range(WIDTHS):
        clocks.steps[i] = CLOCK_PRIOR
        clocks.tokens[i] = CLOCK_PRIOR * (habit.tokens[i] + HABIT_PRIOR) / (habit.steps[i] + HABIT_PRIOR)


cdef int32_t _run_class(int32_t run) noexcept nogil:
    cdef int32_t i = 0
    while run > 0 and i < RUNS - 1:
        run >>= 1
        i += 1
    return i


cdef void _add_run(RunShares *shares, int32_t run, int32_t is_right, double decay) noexcept nogil:
    cdef int32_t i = _run_class(run)
    shares.n[i] = shares.n[i] * decay + 1
    shares.n_right[i] = shares.n_right[i] * decay + is_right


cdef void _run_shares(const Clocks *clocks, const Habit *habit, double *shares) noexcept nogil:
    """Compute how often a drafted token is right after a run of each class, in this text, or in recent ones as long as
    this one has not shown it. What neither has shown is guessed by Laplace's rule: after n right tokens, the next one is
    right in n + 1 of n + 2 cases."""
    cdef double share
    cdef int32_t i, n
    for i in range(RUNS):
        n = (1 << i) // 2
        share = (habit.runs.n_right[i] + RUN_PRIOR * (n + 1) / (n + 2)) / (habit.runs.n[i] + RUN_PRIOR)
        shares[i] = (clocks.runs.n_right[i] + RUN_PRIOR * share) / (clocks.runs.n[i] + RUN_PRIOR)


cdef void _run_tokens(const Clocks *clocks, const Habit *habit, int32_t n_draft, double *n_right) noexcept nogil:
    """Compute how many of the first 0, 1, 2, ..., n_draft tokens of a draft will be right."""
    cdef double shares[RUNS]
    cdef double is_right = 1
    cdef int32_t k
    _run_shares(clocks, habit, shares)
    n_right[0] = 0
    for k in range(n_draft):
        is_right *= shares[_run_class(clocks.run + k)] if is_right > LIKELY_MIN else 0
        n_right[k + 1] = n_right[k] + is_right


cdef void clocks_expect(const Clocks *clocks, const Habit *habit, int32_t n_draft, double *tokens) noexcept nogil:
    """Add how many tokens a step of each width would give now, with a draft of n_draft tokens. Where a change of the
    width costs nothing this is better than what steps gave on average: a text that is copied has long runs."""
    cdef double n_right[WIDTH_MAX]
    cdef int32_t i
    n_draft = min(n_draft, <int32_t>WIDTH_MAX - 1)
    _run_tokens(clocks, habit, n_draft, n_right)
    for i in range(WIDTHS):
        tokens[i] += 1 + n_right[min(n_draft, (1 << i) - 1)]


cdef void clocks_average(const Clocks *clocks, const Habit *habit, double *tokens) noexcept nogil:
    """Add how many tokens a step of each width would have given recently. A step that is still right counts as soon as
    that raises the number, with what is expected of the rest of its draft: a long draft is not doubted until its end."""
    cdef double n_right[WIDTH_MAX]
    cdef double average, n
    cdef int32_t i, n_left = 0
    for i in range(1, WIDTHS):
        n_left = max(n_left, clocks.n_drafts[i] - clocks.n_right[i])
    _run_tokens(clocks, habit, n_left, n_right)
    tokens[0] += 1
    for i in range(1, WIDTHS):
        n_left = max(0, clocks.n_drafts[i] - clocks.n_right[i])
        n = clocks.n_right[i] + n_right[n_left]
        average = clocks.tokens[i] / clocks.steps[i]
        tokens[i] += max(average, (clocks.tokens[i] + n) / (clocks.steps[i] + 1))


cdef void clocks_token(Clocks *clocks, Habit *habit, int32_t token) noexcept nogil:
    """Compare a sampled token with the drafts of all widths. clocks_draft() must follow, because steps may have
    ended."""
    cdef int32_t i, n, is_right = clocks.first == token
    cdef double decay
    if clocks.first >= 0:
        _add_run(&clocks.runs, clocks.run, is_right, RUN_DECAY)
        _add_run(&habit.runs, clocks.run, is_right, HABIT_RUN_DECAY)
        clocks.n_first_right = clocks.n_first_right * CLOCK_DECAY + is_right
        clocks.n_first = clocks.n_first * CLOCK_DECAY + 1
    clocks.run = clocks.run + 1 if is_right else 0
    for i in range(1, WIDTHS):
        n = clocks.n_right[i]
        if n < clocks.n_drafts[i] and clocks.drafts[i][n] == token:
            clocks.n_right[i] += 1
            continue
        decay = CLOCK_DECAY ** (n + 1)
        clocks.tokens[i] = clocks.tokens[i] * decay + n + 1
        clocks.steps[i] = clocks.steps[i] * decay + 1
        decay = HABIT_DECAY ** (n + 1)
        habit.tokens[i] = habit.tokens[i] * decay + n + 1
        habit.steps[i] = habit.steps[i] * decay + 1
        clocks.n_drafts[i] = -1


cdef void clocks_draft(Clocks *clocks, const int32_t *draft, int32_t n) noexcept nogil:
    """Begin a step for each width whose last one has ended, with this draft."""
    cdef int32_t i
    clocks.first = draft[0] if n else -1
    for i in range(1, WIDTHS):
        if clocks.n_drafts[i] < 0:
            clocks.n_right[i] = 0
            clocks.n_drafts[i] = min(n, (1 << i) - 1)
            memcpy(clocks.drafts[i], draft, <size_t>clocks.n_drafts[i] * sizeof(int32_t))


cdef double clocks_first_right(const Clocks *clocks) noexcept nogil:
    """Return the share of drafts whose first token was right."""
    return (clocks.n_first_right + 1) / (clocks.n_first + 2)
