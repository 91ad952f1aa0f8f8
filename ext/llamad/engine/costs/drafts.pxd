# Constants of drafting (drafts/widths.pyx). "Chosen" means that it was not measured. What steps cost is learned while the
# engine runs; these constants say how.

cdef enum:
    # A GPU runs a new shape slowly this many times, before it is captured.
    SETTLING_STEPS_GPU = 2
    # What a change of the shape costs before one was measured (H200, 1B: 4.5 ms uncaptured against 1.3 ms, twice).
    SWITCH_US_GPU = 6000
    SWITCH_US_CPU = 500
    # A change must pay within this many tokens of each slot. Chosen.
    HORIZON_TOKENS = 96
    # The most that the ledger holds, in changes and plain steps. Chosen.
    CREDIT_SWITCHES_MAX = 20
    CREDIT_STEPS_MAX = 60
    # A step that took this many times as long as usual did something else, which drafting does not pay for. Chosen: a new
    # shape takes 3.5 times as long on the H200.
    STEP_OUTLIER = 5
    # Pieces of prompts that the match finder takes in a step beyond those that the step computes: 12 to 30 µs each.
    # Chosen.
    FOLLOW_PIECES = 4
    # A decode of a draft model that took this many times as long as usual had another reason. Chosen.
    DRAFT_OUTLIER = 4
    # What drafts from text may cost at first, in tokens without drafts, and what the first trial of a draft model may
    # cost: changes of the shape, or such tokens if that is more. Chosen: 0.2 % of 10,000 tokens.
    LOAN_SWITCHES = 8
    LOAN_TOKENS = 20
    # A trial of a draft model: how many slots it reads, how many tokens it drafts for each at once, how many tokens are
    # judged, and within how many steps; how many steps pass before the first one and between two of them. Chosen. If
    # none can begin, that is checked again after TRIAL_WAIT steps.
    TRIAL_SLOTS = 2
    TRIAL_DRAFT = 4
    TRIAL_TOKENS = 8
    TRIAL_STEPS = 64
    TRIAL_WAIT = 8
    TRIAL_PAUSE_MIN = 256
    TRIAL_PAUSE_MAX = 4096
    # A draft model is used only after so many of its tokens were judged. Chosen: half a trial.
    JUDGED_MIN = 4
    # What a draft model reads must pay within this many tokens of each slot. Chosen: the length of an answer.
    READING_HORIZON_TOKENS = 256
    # Prompt tokens that a draft model reads in a step while others decode. Chosen: on a GPU a decode of 1,024 tokens of a
    # small model takes little longer than one of 256.
    FOLLOW_TOKENS_CPU = 256
    FOLLOW_TOKENS_GPU = 1024
    # What reading a token takes is learned from decodes of at least this many. Chosen.
    READ_LEARN_MIN = 128
    # The most tokens that a draft model still has to read when it drafts; more are read in a decode before. Chosen.
    BEHIND_MAX = 8
    # A prefix is copied from another sequence of the draft model if that saves at least this many tokens. Chosen.
    ADOPT_TOKENS_MIN = 64

cdef extern from *:
    """
    /* The part of the time that drafts from text may lose. Together with that of a draft model these are the 3 % that are
     * promised. */
    #define LOSS_PART 0.02
    /* The same for a draft model, against steps without it. */
    #define MODEL_LOSS_PART 0.01
    /* A change must make steps this much better. Chosen. */
    #define GAIN_MIN 1.05
    /* Weight of the last step against the learned cost, and the most that a step may differ from it. Chosen. */
    #define COST_LEARN_RATE 0.1
    #define SWITCH_LEARN_RATE 0.3
    #define COST_OUTLIER 0.25
    /* Twice the rows cost this much more, as long as nothing is known. A GPU's is chosen so that it is tried; a CPU was
     * measured (0.5B, Q8_0: 64 rows take 26 to 41 times as long as one). */
    #define ROWS_COST_GUESS_GPU 0.15
    #define ROWS_COST_GUESS_CPU 0.5
    /* How fast clocks forget, with each token: a window of about 96. Chosen. */
    #define CLOCK_DECAY 0.9896
    /* Steps that clocks begin with, all with wrong drafts. Chosen. */
    #define CLOCK_PRIOR 2.0
    /* The same for what a new request begins with: a window of about 2,000 tokens of all requests, and steps with wrong
     * drafts that it begins with. Chosen. */
    #define HABIT_DECAY 0.9995
    #define HABIT_PRIOR 2.0
    /* How fast the shares of runs are forgotten, with each token of that class: in a request and in all; the weight of a
     * guess against them. Tokens of a draft that are right with a smaller probability than LIKELY_MIN do not count.
     * Chosen. */
    #define RUN_DECAY 0.97
    #define HABIT_RUN_DECAY 0.99
    #define RUN_PRIOR 2.0
    #define LIKELY_MIN 0.01
    /* A draft model: how many of its tokens are right before any was judged. ACCEPTANCE: how many judged tokens of a slot
     * the share of all slots counts for, and how fast they are forgotten, with each token of the slot: a window of about
     * 1,000. JUDGED: the same for all slots against the guess, with each token that is judged: a window of about 100.
     * Chosen. */
    #define ACCEPTANCE_GUESS 0.6
    #define ACCEPTANCE_PRIOR 6.0
    #define ACCEPTANCE_DECAY 0.999
    #define JUDGED_DECAY 0.99
    #define JUDGED_PRIOR 1.0
    /* A trial is worth its time if a model with this share of right tokens would pay. Chosen. */
    #define TRIAL_SHARE 0.9
    /* A decode of the draft model for one token costs this part of a step, as long as nothing is known. Chosen. */
    #define DRAFT_COST_GUESS 0.2
    /* The same for each of many tokens that it reads. Chosen. */
    #define READ_COST_GUESS 0.006
    """
    const double LOSS_PART
    const double MODEL_LOSS_PART
    const double GAIN_MIN
    const double COST_LEARN_RATE
    const double SWITCH_LEARN_RATE
    const double COST_OUTLIER
    const double ROWS_COST_GUESS_CPU
    const double ROWS_COST_GUESS_GPU
    const double CLOCK_DECAY
    const double CLOCK_PRIOR
    const double HABIT_DECAY
    const double HABIT_PRIOR
    const double RUN_DECAY
    const double HABIT_RUN_DECAY
    const double RUN_PRIOR
    const double LIKELY_MIN
    const double ACCEPTANCE_GUESS
    const double ACCEPTANCE_PRIOR
    const double ACCEPTANCE_DECAY
    const double JUDGED_DECAY
    const double JUDGED_PRIOR
    const double TRIAL_SHARE
    const double DRAFT_COST_GUESS
    const double READ_COST_GUESS
