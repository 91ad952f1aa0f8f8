# Owns nothing: chooses the next token from tables of n-grams, with the thresholds and the order of llama.cpp's
# ngram-cache. Runs on the engine thread.
#
# The longest n-gram that has been seen often enough, and mostly before one token, drafts this token: first of the
# slot's text, then of earlier texts, with higher thresholds; the fixed table weighs their followers. At last the fixed
# table drafts alone.
from libc.stdint cimport int32_t, int64_t, uint32_t

from llamad.engine.drafts.ngram_table cimport NGRAM_MAX, Follower, Ngram, table_find, table_follower

cdef enum:
    N_FIXED = 2              # tokens of the fixed table's n-grams
    WEIGHT_SEEN = 100        # a follower that the fixed table has, too, weighs as much more as its count says
    WEIGHED_COUNT_MAX = 1 << 24  # larger counts weigh the same, so that products fit
    WEIGHED_MAX = 256        # if both tables have more followers than this, they are not weighed

# Thresholds by the number of tokens in the n-gram, less one: how often it was seen, and the share of its most frequent
# follower.
cdef int32_t[NGRAM_MAX] LAX_COUNTS = [2, 2, 1, 1]
cdef int32_t[NGRAM_MAX] LAX_PERCENTS = [66, 50, 50, 50]
cdef int32_t[NGRAM_MAX] STRICT_COUNTS = [4, 3, 2, 2]
cdef int32_t[NGRAM_MAX] STRICT_PERCENTS = [75, 66, 66, 66]


cdef int64_t _weight(const NgramTable *fixed, const Ngram *fixed_ngram, int32_t token) noexcept nogil:
    cdef const Follower *follower = table_follower(fixed, fixed_ngram, token)
    return WEIGHT_SEEN * <int64_t>min(follower.count, <int32_t>WEIGHED_COUNT_MAX) if follower != NULL else 1


cdef const Follower *_weigh(const NgramTable *t, const Ngram *ngram, const NgramTable *fixed,
                            const Ngram *fixed_ngram) noexcept nogil:
    """Return the follower of the n-gram with the largest product of count and weight; if several have it, the one that
    was added first."""
    cdef const Follower *best = &t.followers[ngram.best - 1]
    cdef const Follower *follower
    cdef int64_t best_product, product
    cdef uint32_t i
    cdef int is_shorter
    if fixed_ngram == NULL or min(ngram.n, fixed_ngram.n) > WEIGHED_MAX:
        return best
    # The best one without weights beats all that the fixed table does not have. So only those matter that both have:
    # the shorter list is gone through.
    is_shorter = ngram.n <= fixed_ngram.n
    best_product = best.count * _weight(fixed, fixed_ngram, best.token)
    i = ngram.last if is_shorter else fixed_ngram.last
    while i:
        follower = &t.followers[i - 1] if is_shorter else table_follower(t, ngram, fixed.followers[i - 1].token)
        i = t.followers[i - 1].next if is_shorter else fixed.followers[i - 1].next
        if follower == NULL:
            continue
        product = follower.count * _weight(fixed, fixed_ngram, follower.token)
        if product > best_product or (product == best_product and follower < best):
            best = follower
            best_product = product
    return best


cdef const Follower *_seen(const NgramTable *t, const int32_t *counts, const int32_t *percents, const int32_t *end,
                           int32_t n_tail, const NgramTable *fixed, const Ngram *fixed_ngram,
                           int32_t *n_match) noexcept nogil:
    """Return the token that follows the longest n-gram before the end which is frequent and clear enough, or NULL."""
    cdef const Follower *follower
    cdef const Ngram *ngram
    cdef int32_t size
    if t == NULL:
        return NULL
    for size in range(n_tail, 0, -1):
        ngram = table_find(t, end - size, size)
        if ngram == NULL or ngram.sum < counts[size - 1]:
            continue
        follower = _weigh(t, ngram, fixed, fixed_ngram)
        if 100 * <int64_t>follower.count >= percents[size - 1] * ngram.sum:
            n_match[0] = size
            return follower
    return NULL


cdef const Follower *_choose(const NgramTables *tables, const int32_t *end, int32_t n_tail,
                             int32_t *n_match) noexcept nogil:
    """Return the token that the tables draft after the last n_tail tokens before the end, or NULL."""
    cdef const Follower *follower
    cdef const Ngram *fixed_ngram = NULL
    if tables.fixed != NULL and n_tail >= N_FIXED:
        fixed_ngram = table_find(tables.fixed, end - N_FIXED, N_FIXED)
    follower = _seen(tables.context, LAX_COUNTS, LAX_PERCENTS, end, n_tail, tables.fixed, fixed_ngram, n_match)
    if follower == NULL:
        follower = _seen(tables.dynamic, STRICT_COUNTS, STRICT_PERCENTS, end, n_tail, tables.fixed, fixed_ngram,
                         n_match)
    if follower == NULL and fixed_ngram != NULL and fixed_ngram.sum >= LAX_COUNTS[N_FIXED - 1]:
        follower = &tables.fixed.followers[fixed_ngram.best - 1]
        n_match[0] = N_FIXED
        if 100 * <int64_t>follower.count < LAX_PERCENTS[N_FIXED - 1] * fixed_ngram.sum:
            return NULL
    return follower


cdef Drafted ngrams_draft(const NgramTables *tables, const int32_t *tokens, int32_t n, int32_t n_draft_max,
                          int32_t *draft) noexcept nogil:
    """Draft the continuation of n tokens, at most n_draft_max. The result's n_match is the size of the first n-gram,
    and n_places how often the first token followed it."""
    cdef int32_t tail[NGRAM_MAX]   # its last n_tail tokens are the text's
    cdef int32_t n_tail = 0, n_match = 0, i
    cdef const Follower *follower
    cdef Drafted drafted
    drafted.n = drafted.n_match = drafted.n_places = 0
    while n_tail < min(n, <int32_t>NGRAM_MAX) and tokens[n - 1 - n_tail] >= 0:
        n_tail += 1
        tail[NGRAM_MAX - n_tail] = tokens[n - n_tail]
    if n < N_FIXED:
        return drafted
    while drafted.n < n_draft_max:
        follower = _choose(tables, tail + NGRAM_MAX, n_tail, &n_match)
        if follower == NULL:
            break
        if drafted.n == 0:
            drafted.n_match = n_match
            drafted.n_places = follower.count
        draft[drafted.n] = follower.token
        drafted.n += 1
        for i in range(NGRAM_MAX - 1):
            tail[i] = tail[i + 1]
        tail[NGRAM_MAX - 1] = follower.token
        n_tail = min(n_tail + 1, <int32_t>NGRAM_MAX)
    return drafted
