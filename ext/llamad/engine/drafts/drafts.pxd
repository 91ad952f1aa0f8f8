# What drafting keeps between steps.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.drafts.acceptance cimport Acceptance
from llamad.engine.drafts.draft_model cimport ModelDrafts
from llamad.engine.drafts.model_account cimport ModelAccount
from llamad.engine.drafts.widths cimport Clocks, Habit, Widths
from llamad.engine.kv.slots cimport Slot

# Writes at most n_max tokens that may follow slot.tokens[:n], and returns how many. Runs on the engine thread.
ctypedef int32_t (*DraftFn)(void *arg, const Slot *slot, int32_t n, int32_t *draft, int32_t n_max) noexcept nogil
# Is told that the slot holds more of its prompt. Takes at most n_max pieces of it, and returns how many.
ctypedef int32_t (*FollowFn)(void *arg, const Slot *slot, int32_t n_max) noexcept nogil
# Is told that the slot's task ends.
ctypedef void (*EndFn)(void *arg, const Slot *slot) noexcept nogil

# A drafter: what guesses tokens. The core keeps it alive.
cdef class Drafter:
    cdef DraftFn fn
    cdef FollowFn follow     # NULL: it does not want to know
    cdef EndFn end           # NULL, too
    cdef void *arg

ctypedef struct Drafts:
    DraftFn fn               # the drafter's; NULL: there is none
    FollowFn follow
    EndFn end
    void *arg
    ModelDrafts *model       # the draft model; NULL: there is none
    Acceptance accepted      # its drafts, of all slots
    Acceptance *accepted_of  # of each slot's task
    double drafting_us       # time that it took before the last step
    double reading_us        # time that it took to read, or for a trial, which this step does not win back
    ModelAccount account     # what it may cost
    int32_t n_run            # how many tokens in a row were right in its trial
    int32_t n_fixed          # every step verifies this many tokens; -1: as many as pay
    int32_t is_named         # the user named a drafter, so each request verifies a draft, whether it pays or not
    int32_t n_rollback       # the most tokens that the memory can remove again; 0: any number
    int32_t is_refused       # the last step had no room for its drafts
    int32_t n_taken          # tokens of the last step
    int32_t n_slots          # the slots that had them
    Widths widths
    Clocks *clocks           # one for each slot
    Habit habit              # of all slots
    uint64_t *tasks          # the task that each clock belongs to

cdef int drafts_init(Drafts *drafts, int32_t n_slots, int32_t has_device) noexcept nogil
cdef void drafts_free(Drafts *drafts) noexcept nogil
cdef int drafts_decodes(const Slot *slot) noexcept nogil
cdef int drafts_can_verify(const Slot *slot) noexcept nogil
cdef void drafts_expect(const Drafts *drafts, const Slot *slot, int32_t has_device, double *tokens) noexcept nogil
