# Owns: the history that DRY uses, and the penalties that follow from it. Belongs to one sampler.
#
# Lengths and limits are llama.cpp's, and so is the way in which a clipped length affects later ones: if a breaker
# limits the repetition, the plain Z-algorithm would give other numbers.
from libc.math cimport logf, pow
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memmove, memset

from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.logits_row cimport Row, row_set
from llamad.base.function_table cimport llamad_sampling

cdef float LOG_FLOAT_MAX = 88.7228391


cdef int dry_open(Dry *dry, const llamad_sampling *s, int32_t n_vocab, const int32_t *breakers,
                  int32_t n_breakers) noexcept nogil:
    """Return 0, or -1 if memory ran out. `breakers` are n_breakers numbers, none if there are no breakers."""
    cdef size_t n_max = <size_t>s.dry_penalty_last_n
    cdef int32_t i
    dry.n_max = s.dry_penalty_last_n
    dry.tokens = <int32_t *>malloc(2 * n_max * sizeof(int32_t))
    dry.repeats = <int32_t *>malloc(n_max * sizeof(int32_t))
    dry.penalized = <int32_t *>malloc(n_max * sizeof(int32_t))
    dry.longest = <int32_t *>calloc(<size_t>n_vocab, sizeof(int32_t))
    dry.is_head = <uint8_t *>calloc(<size_t>n_vocab // 8 + 1, 1)
    dry.breakers = <int32_t *>malloc(<size_t>(n_breakers + 1) * sizeof(int32_t))
    if (dry.tokens == NULL or dry.repeats == NULL or dry.penalized == NULL or dry.longest == NULL or dry.is_head == NULL
            or dry.breakers == NULL):
        return -1
    dry.breakers[0] = 0
    if n_breakers > 0:
        memcpy(dry.breakers, breakers, <size_t>n_breakers * sizeof(int32_t))
    for i in range(1, dry.breakers[0] + 1):
        if dry.breakers[i] < n_vocab:
            dry.is_head[dry.breakers[i] >> 3] |= <uint8_t>(1 << (dry.breakers[i] & 7))
    return 0


cdef void dry_close(Dry *dry) noexcept nogil:
    free(dry.tokens)
    free(dry.repeats)
    free(dry.penalized)
    free(dry.longest)
    free(dry.is_head)
    free(dry.breakers)


cdef void dry_accept(Dry *dry, int32_t token) noexcept nogil:
    if dry.tokens == NULL:
        return
    if dry.end == 2 * dry.n_max:
        memmove(dry.tokens, dry.tokens + dry.n_max, <size_t>dry.n_max * sizeof(int32_t))
        dry.end = dry.n_max
    dry.tokens[dry.end] = token
    dry.end += 1
    dry.n = min(dry.n + 1, dry.n_max)


# --- breakers -------------------------------------------------------------------------------------------------

cdef const int32_t *_tails(const Dry *dry, int32_t token) noexcept nogil:
    """Return the number of tails of breakers that begin with this token, followed by the tails; or NULL."""
    cdef int32_t low = 1, high = dry.breakers[0] + 1, middle
    if not dry.is_head[token >> 3] >> (token & 7) & 1:
        return NULL
    while low < high:
        middle = (low + high) // 2
        if dry.breakers[middle] < token:
            low = middle + 1
        else:
            high = middle
    return dry.breakers + dry.breakers[low + dry.breakers[0]]


cdef int _breaks_alone(const Dry *dry, int32_t token) noexcept nogil:
    """Return whether the token is a whole breaker by itself."""
    cdef const int32_t *tails = _tails(dry, token)
    cdef const int32_t *tail
    cdef int32_t _
    if tails == NULL:
        return 0
    tail = tails + 1
    for _ in range(tails[0]):
        if tail[0] == 0:
            return 1
        tail += 1 + tail[0]
    return 0


cdef int32_t _limit(const Dry *dry) noexcept nogil:
    """Return how long a repetition may be without reaching over a breaker."""
    cdef const int32_t *last = dry.tokens + dry.end - 1   # last[-i]: the token i places before the end
    cdef const int32_t *tails
    cdef const int32_t *tail
    cdef int32_t _, i, k, matched
    for i in range(dry.n):
        tails = _tails(dry, last[-i])
        if tails == NULL:
            continue
        matched = -1
        tail = tails + 1
        for _ in range(tails[0]):
            if tail[0] > matched and tail[0] <= i:
                k = 0
                while k < tail[0] and tail[1 + k] == last[-(i - k - 1)]:
                    k += 1
                if k == tail[0]:
                    matched = k
            tail += 1 + tail[0]
        if matched >= 0:
            return i - matched
    return dry.n


# --- repetitions ----------------------------------------------------------------------------------------------

cdef void _measure(Dry *dry, int32_t limit) noexcept nogil:
    """Set repeats[n - 1 - k] to how much of the history's end also ends k tokens earlier, at most `limit`."""
    cdef const int32_t *last = dry.tokens + dry.end - 1
    cdef int32_t *repeats = dry.repeats
    cdef int32_t n = dry.n, left = 0, right = 0, k, i, mirrored
    memset(repeats, 0, <size_t>n * sizeof(int32_t))
    for k in range(1, n):
        if k > right:
            i = 0
            while i + k < n and last[-i] == last[-(i + k)]:
                i += 1
            repeats[n - 1 - k] = min(i, limit)
            if i > 0:
                left = k
                right = k + i - 1
            continue
        mirrored = repeats[n - 1 - (k - left)]
        if mirrored < right - k + 1:
            repeats[n - 1 - k] = min(mirrored, limit)
            continue
        i = right + 1
        while i < n and last[-i] == last[-(i - k)]:
            i += 1
        repeats[n - 1 - k] = min(i - k, limit)
        left = k
        right = i - 1


cdef int dry_find(Dry *dry, const llamad_sampling *s) noexcept nogil:
    """Find the tokens that would continue a repetition. Return 0 if llama.cpp would not search at all."""
    cdef const int32_t *first = dry.tokens + dry.end - dry.n
    cdef int32_t i, token, limit
    dry.n_penalized = 0
    if dry.n <= s.dry_allowed_length:
        return 0
    limit = _limit(dry)
    if limit < s.dry_allowed_length:
        return 0
    _measure(dry, limit)
    for i in range(dry.n - 1):
        if dry.repeats[i] >= s.dry_allowed_length:
            token = first[i + 1]
            if dry.longest[token] == 0:
                dry.penalized[dry.n_penalized] = token
                dry.n_penalized += 1
            dry.longest[token] = max(dry.longest[token], dry.repeats[i] + 1)
    return 1


cdef void dry_forget(Dry *dry) noexcept nogil:
    """Forget the penalized tokens, after a token was sampled."""
    cdef int32_t i
    for i in range(dry.n_penalized):
        dry.longest[dry.penalized[i]] = 0
    dry.n_penalized = 0


cdef float _penalty(const Dry *dry, const llamad_sampling *s, int32_t token) noexcept nogil:
    cdef int32_t exponent = dry.longest[token] - 1 - s.dry_allowed_length, most = 0
    if s.dry_base > <float>1.000001:
        most = <int32_t>(LOG_FLOAT_MAX / logf(s.dry_base))
    if most > 0 and exponent > most:
        exponent = most
    return <float>(<double>s.dry_multiplier * pow(<double>s.dry_base, <double>exponent))


cdef void dry_to_row(const Dry *dry, const llamad_sampling *s, Row *row) noexcept nogil:
    cdef int32_t i, token
    for i in range(dry.n_penalized):
        token = dry.penalized[i]
        if not _breaks_alone(dry, token):
            row_set(row, token, row.logits[token] - _penalty(dry, s, token))


cdef void dry_to_list(const Dry *dry, const llamad_sampling *s, Candidates *c) noexcept nogil:
    cdef int32_t i, token
    for i in range(c.n):
        token = c.data[i].id
        if dry.longest[token] and not _breaks_alone(dry, token):
            c.data[i].logit -= _penalty(dry, s, token)
    c.is_sorted = 0
