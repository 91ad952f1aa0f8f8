# What drafting keeps between steps. Only data: drafting.pyx owns it.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.drafts.widths cimport Clocks, Widths

# Writes at most n_max tokens that may follow the n tokens of the slot, and returns how many. Runs on the engine thread.
ctypedef int32_t (*DraftFn)(void *arg, int32_t slot, const int32_t *tokens, int32_t n, int32_t *draft,
                            int32_t n_max) noexcept nogil

ctypedef struct Drafts:
    DraftFn fn               # NULL: nothing is drafted
    void *arg
    int32_t n_fixed          # every step verifies this many tokens; -1: as many as pay
    int32_t n_rows_more      # rows that a step may have beside one for each slot
    int32_t is_refused       # the last step had no room for its drafts
    int32_t n_taken          # tokens of the last step
    int32_t n_slots          # the slots that had them
    Widths widths
    Clocks *clocks           # one for each slot
    uint64_t *tasks          # the task that each clock belongs to
