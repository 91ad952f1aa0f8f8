# A table of n-grams: how often each token followed 1 to 4 others. It is what llama.cpp calls an n-gram cache.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef enum:
    NGRAM_MAX = 4

ctypedef struct Follower:
    uint32_t ngram           # index of its n-gram
    int32_t token
    int32_t count
    uint32_t next            # 1 + index of another follower of the same n-gram, which was added before; 0: none

ctypedef struct Ngram:
    int32_t tokens[NGRAM_MAX]  # -1 fills a shorter one
    int64_t sum              # of the counts of its followers
    uint32_t last            # 1 + index of the follower that was added last
    uint32_t best            # 1 + index of the follower with the highest count; the one added first if several have it
    int32_t n                # followers

ctypedef struct NgramTable:
    Ngram *ngrams
    uint32_t n_ngrams
    uint32_t n_ngrams_max
    uint32_t *ngram_slots    # hash table: 1 + index; 0: free
    int32_t ngram_shift
    Follower *followers
    uint32_t n_followers
    uint32_t n_followers_max
    uint32_t *follower_slots
    int32_t follower_shift
    uint64_t seed            # of the hashes, so that no text can be made to collide
    int32_t is_free          # 0: another thread learns or writes
    int32_t n_changes        # how often something was learned, modulo 2^31

cdef enum Learned:
    LEARNED_ALL = 0
    LEARNED_LESS = -1        # the table is full
    LEARNED_NOTHING = -2     # another thread writes it

cdef int table_init(NgramTable *t, uint32_t n_ngrams_max, uint32_t n_followers_max) noexcept nogil
cdef void table_free(NgramTable *t) noexcept nogil
cdef Ngram *table_find(const NgramTable *t, const int32_t *tokens, int32_t n) noexcept nogil
cdef Follower *table_follower(const NgramTable *t, const Ngram *ngram, int32_t token) noexcept nogil
cdef Ngram *table_make(NgramTable *t, const int32_t *tokens, int32_t n) noexcept nogil
cdef int table_add(NgramTable *t, Ngram *ngram, int32_t token, int32_t count) noexcept nogil
cdef Learned table_learn(NgramTable *t, const int32_t *tokens, int32_t n, int32_t n_new) noexcept nogil
cdef int table_take(NgramTable *t) noexcept nogil
cdef void table_release(NgramTable *t) noexcept nogil
