# Earlier answers of each owner: texts from which later answers of the same owner are drafted.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.drafts.draft_rules cimport Drafted, DraftRules
from llamad.engine.drafts.match_finder cimport Matches

cdef enum:
    ANSWER_OWNERS_MAX = 8    # with ANSWER_TOKENS_MAX for each: 8 MiB. Chosen
    ANSWER_TOKENS_MAX = 1 << 16

ctypedef struct OwnedAnswers:
    uint64_t owner
    uint64_t used            # larger is later; 0: nobody's
    Matches matches          # the last answers, with a border before each

ctypedef struct Answers:
    OwnedAnswers *owned
    int32_t n_owners_max
    uint64_t last_used

cdef int answers_init(Answers *answers, int32_t n_owners_max, int32_t n_tokens_max) noexcept nogil
cdef void answers_free(Answers *answers) noexcept nogil
cdef void answers_add(Answers *answers, uint64_t owner, const int32_t *tokens, int32_t n) noexcept nogil
cdef Drafted answers_draft(Answers *answers, uint64_t owner, const int32_t *tokens, int32_t n, const DraftRules *rules,
                           int32_t *draft) noexcept nogil
