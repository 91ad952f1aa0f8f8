# Owns: the index of a text by hash chains, and the search for its longest match. A slot has one over its own tokens, an
# owner one over earlier answers (earlier_answers.pyx). Runs on the engine thread.
#
# The index only proposes places; their tokens are compared with the text's end. So a hash that collides costs a step,
# never a wrong match. The work of a call is bounded, whatever the text: PIECE_TOKENS are indexed, STEPS_*_MAX places
# visited, and at most MATCH_MAX tokens compared at each.
#
# Negative ids stand for rows of embeddings and for the border between two answers: no gram, no match and no draft
# contains one.
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    END_MAX = 1 << 30        # a ring is emptied when so many tokens went through it
    N_CHECKED = 8            # tokens that are compared in each step, to notice that a slot's text is another
    COMPARED = 64            # tokens that are compared at once


# The places with the longest match so far, the most recent first.
ctypedef struct Places:
    int32_t at[PLACES_MAX]
    int32_t n
    int32_t n_match
    int32_t n_limit          # matches are measured up to this length


cdef int matches_init(Matches *m, int32_t n_max) noexcept nogil:
    """Make room for a text of n_max tokens. Return 0, or -1 if memory ran out; matches_free() is needed then, too."""
    cdef int32_t i, n_bits = 8
    memset(m, 0, sizeof(Matches))
    while n_bits < 30 and (1 << n_bits) < n_max:
        n_bits += 1
    m.n_max = 1 << n_bits
    m.shift = 64 - (n_bits - 1)
    m.tokens = <int32_t *>malloc(<size_t>m.n_max * sizeof(int32_t))
    m.chains[0].n_gram = GRAM_LONG
    m.chains[1].n_gram = GRAM_SHORT
    for i in range(N_CHAINS):
        m.chains[i].heads = <int32_t *>malloc(<size_t>m.n_max // 2 * sizeof(int32_t))
        m.chains[i].previous = <int32_t *>malloc(<size_t>m.n_max * sizeof(int32_t))
        if m.tokens == NULL or m.chains[i].heads == NULL or m.chains[i].previous == NULL:
            return -1
    # Every page of the heads is written to now: the first tokens of a text would cause a page fault each.
    _empty(m)
    return 0


cdef void matches_free(Matches *m) noexcept nogil:
    cdef int32_t i
    free(m.tokens)
    for i in range(N_CHAINS):
        free(m.chains[i].heads)
        free(m.chains[i].previous)
    memset(m, 0, sizeof(Matches))


cdef void _empty(Matches *m) noexcept nogil:
    cdef int32_t i
    for i in range(N_CHAINS):
        memset(m.chains[i].heads, 0xFF, <size_t>m.n_max // 2 * sizeof(int32_t))


cdef void _unindex(Matches *m) noexcept nogil:
    if m.n_indexed:
        _empty(m)
    m.n_indexed = 0


cdef void matches_clear(Matches *m) noexcept nogil:
    """Forget the text."""
    _unindex(m)
    m.end = 0


cdef inline int32_t _first(const Matches *m) noexcept nogil:
    """Return the position of the first token that the ring still has."""
    return max(0, m.end - m.n_max)


cdef inline int32_t _at(const Matches *m, int32_t position) noexcept nogil:
    return m.tokens[position & (m.n_max - 1)]


# --- index ------------------------------------------------------------------------------------------------------

cdef inline uint64_t _mixed(uint64_t hash, int32_t token) noexcept nogil:
    return (hash ^ <uint32_t>token) * <uint64_t>0x9E3779B97F4A7C15


cdef inline int _bucket(const Matches *m, int32_t place, int32_t n_gram, uint32_t *bucket) noexcept nogil:
    """Set the bucket of a place. Return 0 if there is none: it has no token, or there is no gram before it."""
    cdef uint64_t hash = 0
    cdef int32_t i, token
    if place - n_gram < _first(m) or _at(m, place) < 0:
        return 0
    for i in range(place - n_gram, place):
        token = _at(m, i)
        if token < 0:
            return 0
        hash = _mixed(hash, token)
    bucket[0] = <uint32_t>(hash >> m.shift)
    return 1


cdef int32_t matches_index(Matches *m) noexcept nogil:
    """Index the next PIECE_TOKENS of the text. Return how many are left for later calls."""
    cdef int32_t i, place, n_last
    cdef uint32_t bucket
    cdef Chain *chain
    m.n_indexed = max(m.n_indexed, _first(m))
    n_last = min(m.end, m.n_indexed + PIECE_TOKENS)
    for i in range(N_CHAINS):
        chain = &m.chains[i]
        for place in range(m.n_indexed, n_last):
            if _bucket(m, place, chain.n_gram, &bucket):
                chain.previous[place & (m.n_max - 1)] = chain.heads[bucket]
                chain.heads[bucket] = place
    m.n_indexed = n_last
    return m.end - n_last


cdef void _cut(Matches *m, int32_t n) noexcept nogil:
    """Forget the text from position n on. If that is much of it, all of it is indexed again, in pieces."""
    cdef int32_t i, place
    cdef uint32_t bucket
    cdef Chain *chain
    if n <= _first(m) or m.n_indexed - n > CUT_TOKENS_MAX:
        _unindex(m)
    for i in range(N_CHAINS):
        chain = &m.chains[i]
        for place in range(m.n_indexed - 1, n - 1, -1):
            if _bucket(m, place, chain.n_gram, &bucket):
                chain.heads[bucket] = chain.previous[place & (m.n_max - 1)]
    m.end = n
    m.n_indexed = min(m.n_indexed, n)


cdef void _copy(Matches *m, const int32_t *tokens, int32_t n) noexcept nogil:
    """Append at most n_max tokens to the text."""
    cdef int32_t at = m.end & (m.n_max - 1)
    cdef int32_t n_first = min(n, m.n_max - at)
    memcpy(m.tokens + at, tokens, <size_t>n_first * sizeof(int32_t))
    memcpy(m.tokens, tokens + n_first, <size_t>(n - n_first) * sizeof(int32_t))
    m.end += n


cdef int32_t matches_append(Matches *m, const int32_t *tokens, int32_t n) noexcept nogil:
    """Append tokens to a text, and index a piece. Return how many tokens are left for matches_index()."""
    cdef int32_t n_kept = min(n, m.n_max)
    if m.end > END_MAX - n_kept:
        matches_clear(m)
    _copy(m, tokens + n - n_kept, n_kept)
    return matches_index(m)


cdef void matches_agree(Matches *m, const int32_t *tokens, int32_t n) noexcept nogil:
    """Forget the text from where it differs from these tokens. They are all compared: 15 µs for 100,000."""
    cdef int32_t n_same = 0, n_both = min(n, m.end)
    while n_same + COMPARED <= n_both and memcmp(m.tokens + n_same, tokens + n_same, COMPARED * sizeof(int32_t)) == 0:
        n_same += COMPARED
    while n_same < n_both and m.tokens[n_same] == tokens[n_same]:
        n_same += 1
    if n_same < m.end:
        _cut(m, n_same)


cdef int32_t matches_follow(Matches *m, const int32_t *tokens, int32_t n) noexcept nogil:
    """Make the text equal to a slot's n tokens, of which a piece is added at most. Return how many are left for later
    calls. A slot with more than n_max tokens has an empty text.

    If tokens before the text's end were changed, matches_agree() must be called before, once. (A change is noticed here
    if one of the last tokens before the end differs.)"""
    cdef int32_t n_both = min(n, m.end)
    cdef int32_t n_last = min(n_both, <int32_t>N_CHECKED)
    if n > m.n_max:
        matches_clear(m)
        return 0
    if memcmp(m.tokens + n_both - n_last, tokens + n_both - n_last, <size_t>n_last * sizeof(int32_t)) != 0:
        matches_agree(m, tokens, n)
    elif n < m.end:
        _cut(m, n)
    _copy(m, tokens + m.end, min(n - m.end, <int32_t>PIECE_TOKENS))
    matches_index(m)
    return n - m.n_indexed


# --- search -----------------------------------------------------------------------------------------------------

cdef inline int32_t _common(const Matches *m, int32_t place, const int32_t *tail, int32_t n_tail) noexcept nogil:
    """Return how many tokens before the place are those before the tail's end, at most n_tail."""
    cdef int32_t k = 0, token
    n_tail = min(n_tail, place - _first(m))
    while k < n_tail:
        token = _at(m, place - 1 - k)
        if token != tail[-1 - k] or token < 0:
            break
        k += 1
    return k


cdef void _search(Matches *m, const Chain *chain, int32_t n_steps, const int32_t *tail, int32_t n_tail,
                  int32_t n_places_max, Places *places) noexcept nogil:
    """Find the places in the chain with the longest match of what is before the tail's end."""
    cdef uint64_t hash = 0
    cdef int32_t i, place, n_match
    if n_tail < chain.n_gram:
        return
    for i in range(chain.n_gram, 0, -1):
        if tail[-i] < 0:
            return
        hash = _mixed(hash, tail[-i])
    place = chain.heads[hash >> m.shift]
    while n_steps and place > _first(m):
        n_steps -= 1
        m.n_steps += 1
        # Most places are not better; their first token that is compared already differs.
        if places.n_match == 0 or (place - places.n_match >= _first(m)
                                   and _at(m, place - places.n_match) == tail[-places.n_match]):
            n_match = _common(m, place, tail, places.n_limit)
            if n_match > places.n_match and n_match >= chain.n_gram:
                places.n_match = n_match
                places.n = 0
            if 0 < n_match == places.n_match and places.n < n_places_max:
                places.at[places.n] = place
                places.n += 1
            if places.n == n_places_max and places.n_match == places.n_limit:
                return
        place = chain.previous[place & (m.n_max - 1)]


cdef int32_t _vote(const Matches *m, Places *places, int32_t offset, int32_t n_own, int32_t n_needed,
                   const int32_t *draft) noexcept nogil:
    """Return the token that follows at most of the places, -1 if it does not at n_needed of them; drop the others. If
    two follow as often, the token at the most recent place wins. A draft continues a text of n_own tokens."""
    cdef int32_t tokens[PLACES_MAX]
    cdef int32_t i, k, at, n = 0, n_best = 0, best = -1, n_same = 0
    for i in range(places.n):
        at = places.at[i] + offset
        if at < m.end:
            tokens[i] = _at(m, at)
        else:
            tokens[i] = draft[at - n_own] if n_own else -1
        n_same += tokens[i] == tokens[0]
    if n_same == places.n:
        return tokens[0] if n_same >= n_needed else -1
    for i in range(places.n):
        if tokens[i] < 0 or tokens[i] == best:
            continue
        n = 0
        for k in range(i, places.n):
            n += tokens[k] == tokens[i]
        if n > n_best:
            n_best = n
            best = tokens[i]
        if n_best >= places.n - i:
            break
    if n_best < n_needed:
        return -1
    n = 0
    for i in range(places.n):
        if tokens[i] == best:
            places.at[n] = places.at[i]
            n += 1
    places.n = n
    return best


cdef Drafted _draft(Matches *m, const int32_t *tail, int32_t n_tail, int32_t n_own, const DraftRules *rules,
                    int32_t *draft) noexcept nogil:
    cdef Drafted drafted
    cdef Places places
    cdef int32_t n_match_min = max(rules.n_match_min, <int32_t>GRAM_SHORT)
    cdef int32_t n_places_max = max(1, min(rules.n_places_max, <int32_t>PLACES_MAX))
    cdef int32_t n_draft_max = rules.n_draft_max, n_needed, token
    drafted.n = drafted.n_match = drafted.n_places = 0
    places.n = places.n_match = 0
    places.n_limit = min(max(<int32_t>MATCH_MAX, n_match_min), n_tail)
    _search(m, &m.chains[0], STEPS_LONG_MAX, tail, n_tail, n_places_max, &places)
    if places.n == 0 and n_match_min < GRAM_LONG:
        _search(m, &m.chains[1], STEPS_SHORT_MAX, tail, n_tail, n_places_max, &places)
    if places.n < max(1, rules.n_places_min) or places.n_match < n_match_min:
        return drafted
    drafted.n_match = places.n_match
    drafted.n_places = places.n
    if rules.n_per_match:
        n_draft_max = min(n_draft_max, rules.n_per_match * places.n_match)
    n_needed = max(1, (places.n * rules.percent_min + 99) // 100)
    while drafted.n < n_draft_max:
        token = _vote(m, &places, drafted.n, n_own, n_needed, draft)
        if token < 0:
            break
        draft[drafted.n] = token
        drafted.n += 1
    if drafted.n < rules.n_draft_min:
        drafted.n = 0
    return drafted


cdef Drafted matches_draft(Matches *m, const int32_t *tokens, int32_t n, const DraftRules *rules,
                           int32_t *draft) noexcept nogil:
    """Draft the continuation of a slot's n tokens, at most n_draft_max, after matches_follow(). While some are left to
    follow, a draft ends where the text does."""
    return _draft(m, tokens + n, n, n if n == m.end else 0, rules, draft)


cdef Drafted matches_draft_other(Matches *m, const int32_t *tokens, int32_t n, const DraftRules *rules,
                                 int32_t *draft) noexcept nogil:
    """Draft a continuation of n tokens from this text, which is another one."""
    return _draft(m, tokens + n, n, 0, rules, draft)
