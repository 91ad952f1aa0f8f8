# The match finder: drafts the continuation of the longest earlier occurrence of a text's end.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.drafts.draft_rules cimport Drafted, DraftRules

cdef enum:
    N_CHAINS = 2
    GRAM_LONG = 4            # the chains' grams; matches of at least this length are all in the first chain,
    GRAM_SHORT = 2           # shorter ones in the second
    STEPS_LONG_MAX = 64      # places of a chain that a search visits
    STEPS_SHORT_MAX = 32
    MATCH_MAX = 32           # a match is not measured any further, unless n_match_min is larger
    PLACES_MAX = 16          # places that can vote
    PIECE_TOKENS = 1024      # tokens that one call copies and indexes at most: 12 to 30 µs
    CUT_TOKENS_MAX = 4096    # tokens that one call removes from the index at most

# The places of a text, linked if the tokens before them have the same hash. The most recent is first.
ctypedef struct Chain:
    int32_t n_gram           # how many tokens before a place are hashed
    int32_t *heads           # the most recent place of each bucket; -1: none
    int32_t *previous        # for each place, the one before it in its bucket

# A text and its index, 16 bytes a token. It is a ring: of a longer text, the last tokens are kept. A place is a
# position in the text that has a token, which continues what is before it.
ctypedef struct Matches:
    int32_t *tokens
    int32_t n_max            # the size of the ring, a power of 2
    int32_t end              # tokens of the text, with those that the ring has lost
    int32_t n_indexed        # places before this one are in the chains
    int32_t shift            # a hash is shifted right by this
    Chain chains[N_CHAINS]
    uint64_t n_steps         # places that searches have visited, for tests

cdef int matches_init(Matches *m, int32_t n_max) noexcept nogil
cdef void matches_free(Matches *m) noexcept nogil
cdef void matches_clear(Matches *m) noexcept nogil
cdef void matches_agree(Matches *m, const int32_t *tokens, int32_t n) noexcept nogil
cdef int32_t matches_follow(Matches *m, const int32_t *tokens, int32_t n) noexcept nogil
cdef int32_t matches_append(Matches *m, const int32_t *tokens, int32_t n) noexcept nogil
cdef int32_t matches_index(Matches *m) noexcept nogil
cdef Drafted matches_draft(Matches *m, const int32_t *tokens, int32_t n, const DraftRules *rules,
                           int32_t *draft) noexcept nogil
cdef Drafted matches_draft_other(Matches *m, const int32_t *tokens, int32_t n, const DraftRules *rules,
                                 int32_t *draft) noexcept nogil
