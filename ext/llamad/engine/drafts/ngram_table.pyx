# Owns: the memory of n-gram tables, which is allocated once. A full table counts what it has and takes nothing new. The
# engine thread looks up and learns; another thread may write a table to a file meanwhile, and nothing is learned then.
from libc.stdint cimport INT32_MAX, int32_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset

from posix.unistd cimport getpid

from llamad.base.system cimport now_us, store_int, take_int


cdef inline uint64_t _mixed(uint64_t hash, uint32_t number) noexcept nogil:
    hash = (hash ^ number) * <uint64_t>0x9E3779B97F4A7C15
    return hash ^ hash >> 29


cdef int32_t _shift(uint32_t n) noexcept nogil:
    """Return by how much a hash is shifted for a table of at least 2 n slots."""
    cdef int32_t n_bits = 4
    while <uint64_t>1 << n_bits < 2 * <uint64_t>n:
        n_bits += 1
    return 64 - n_bits


cdef int table_init(NgramTable *t, uint32_t n_ngrams_max, uint32_t n_followers_max) noexcept nogil:
    """Return 0, or -1 if memory ran out; table_free() is needed then, too. The system provides the memory as it is
    used."""
    memset(t, 0, sizeof(NgramTable))
    t.n_ngrams_max = n_ngrams_max
    t.n_followers_max = n_followers_max
    t.ngram_shift = _shift(n_ngrams_max)
    t.follower_shift = _shift(n_followers_max)
    t.seed = _mixed(<uint64_t>now_us(), <uint32_t>getpid())
    t.is_free = 1
    t.ngrams = <Ngram *>malloc((<size_t>n_ngrams_max + 1) * sizeof(Ngram))
    t.followers = <Follower *>malloc((<size_t>n_followers_max + 1) * sizeof(Follower))
    t.ngram_slots = <uint32_t *>calloc(<size_t>1 << (64 - t.ngram_shift), sizeof(uint32_t))
    t.follower_slots = <uint32_t *>calloc(<size_t>1 << (64 - t.follower_shift), sizeof(uint32_t))
    if t.ngrams == NULL or t.followers == NULL or t.ngram_slots == NULL or t.follower_slots == NULL:
        return -1
    return 0


cdef void table_free(NgramTable *t) noexcept nogil:
    free(t.ngrams)
    free(t.followers)
    free(t.ngram_slots)
    free(t.follower_slots)
    memset(t, 0, sizeof(NgramTable))


cdef uint32_t *_ngram_slot(const NgramTable *t, const int32_t *padded) noexcept nogil:
    """Return the slot of an n-gram, or the free one where it belongs."""
    cdef uint64_t mask = (<uint64_t>1 << (64 - t.ngram_shift)) - 1
    cdef uint64_t hash = t.seed, i
    cdef int32_t k
    for k in range(NGRAM_MAX):
        hash = _mixed(hash, <uint32_t>padded[k])
    i = hash * <uint64_t>0x9E3779B97F4A7C15 >> t.ngram_shift
    while t.ngram_slots[i] and memcmp(t.ngrams[t.ngram_slots[i] - 1].tokens, padded, NGRAM_MAX * sizeof(int32_t)) != 0:
        i = (i + 1) & mask
    return &t.ngram_slots[i]


cdef uint32_t *_follower_slot(const NgramTable *t, uint32_t ngram, int32_t token) noexcept nogil:
    """Return the slot of a follower, or the free one where it belongs."""
    cdef uint64_t mask = (<uint64_t>1 << (64 - t.follower_shift)) - 1
    cdef uint64_t i = _mixed(_mixed(t.seed, ngram), <uint32_t>token) * <uint64_t>0x9E3779B97F4A7C15 >> t.follower_shift
    cdef const Follower *follower
    while t.follower_slots[i]:
        follower = &t.followers[t.follower_slots[i] - 1]
        if follower.ngram == ngram and follower.token == token:
            break
        i = (i + 1) & mask
    return &t.follower_slots[i]


cdef inline void _pad(int32_t *padded, const int32_t *tokens, int32_t n) noexcept nogil:
    cdef int32_t i
    for i in range(NGRAM_MAX):
        padded[i] = tokens[i] if i < n else -1


cdef Ngram *table_find(const NgramTable *t, const int32_t *tokens, int32_t n) noexcept nogil:
    """Return the n-gram of n tokens, or NULL. The pointer is always valid."""
    cdef int32_t padded[NGRAM_MAX]
    cdef uint32_t i
    _pad(padded, tokens, n)
    i = _ngram_slot(t, padded)[0]
    return &t.ngrams[i - 1] if i else NULL


cdef Follower *table_follower(const NgramTable *t, const Ngram *ngram, int32_t token) noexcept nogil:
    """Return the entry of a token that followed the n-gram, or NULL."""
    cdef uint32_t i = _follower_slot(t, <uint32_t>(ngram - t.ngrams), token)[0]
    return &t.followers[i - 1] if i else NULL


cdef Ngram *table_make(NgramTable *t, const int32_t *tokens, int32_t n) noexcept nogil:
    """Return the n-gram of n tokens, which is added if it is new; NULL if the table is full."""
    cdef int32_t padded[NGRAM_MAX]
    cdef uint32_t *slot
    cdef Ngram *ngram
    _pad(padded, tokens, n)
    slot = _ngram_slot(t, padded)
    if slot[0]:
        return &t.ngrams[slot[0] - 1]
    if t.n_ngrams == t.n_ngrams_max:
        return NULL
    ngram = &t.ngrams[t.n_ngrams]
    memset(ngram, 0, sizeof(Ngram))
    _pad(ngram.tokens, tokens, n)
    t.n_ngrams += 1
    slot[0] = t.n_ngrams
    return ngram


cdef int table_add(NgramTable *t, Ngram *ngram, int32_t token, int32_t count) noexcept nogil:
    """Count that a token followed the n-gram. Return 0, or -1 if the table is full."""
    cdef uint32_t *slot = _follower_slot(t, <uint32_t>(ngram - t.ngrams), token)
    cdef Follower *follower
    if slot[0] == 0:
        if t.n_followers == t.n_followers_max:
            return -1
        follower = &t.followers[t.n_followers]
        follower.ngram = <uint32_t>(ngram - t.ngrams)
        follower.token = token
        follower.count = 0
        follower.next = ngram.last
        t.n_followers += 1
        slot[0] = ngram.last = t.n_followers
        ngram.n += 1
    follower = &t.followers[slot[0] - 1]
    count = min(count, INT32_MAX - follower.count)
    follower.count += count
    ngram.sum += count
    if ngram.best == 0 or follower.count > t.followers[ngram.best - 1].count or (
            follower.count == t.followers[ngram.best - 1].count and slot[0] < ngram.best):
        ngram.best = slot[0]
    return 0


cdef Learned table_learn(NgramTable *t, const int32_t *tokens, int32_t n, int32_t n_new) noexcept nogil:
    """Count what the last n_new of n tokens followed."""
    cdef int32_t i, size
    cdef Learned result = LEARNED_ALL
    cdef Ngram *ngram
    if not table_take(t):
        return LEARNED_NOTHING
    for i in range(n - n_new, n):
        size = 1
        while tokens[i] >= 0 and size <= NGRAM_MAX and i - size >= 0 and tokens[i - size] >= 0:
            ngram = table_make(t, tokens + i - size, size)
            if ngram == NULL or table_add(t, ngram, tokens[i], 1) != 0:
                result = LEARNED_LESS
            size += 1
    store_int(&t.n_changes, (t.n_changes + 1) & INT32_MAX)
    table_release(t)
    return result


cdef int table_take(NgramTable *t) noexcept nogil:
    """Return whether the table is the caller's until table_release(), which never waits. Looking up needs no taking."""
    return take_int(&t.is_free)


cdef void table_release(NgramTable *t) noexcept nogil:
    store_int(&t.is_free, 1)
