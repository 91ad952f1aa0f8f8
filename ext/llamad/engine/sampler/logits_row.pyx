# Owns: the row of logits while a sampler works on it, and the samplers that need no list of the whole vocabulary.
# Runs on sampler threads.
#
# A function that cuts leaves in `c` what llama.cpp's sampler would leave of all candidates in vocabulary order, and
# returns 1. It returns 0 if it cannot decide that; then the caller makes the whole list.
from libc.float cimport FLT_MAX
from libc.math cimport INFINITY, logf, sqrtf
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcpy

from llamad.engine.sampler.llama_sort cimport (
    BUCKETS_N, buckets_collect, buckets_down_to, buckets_masses, buckets_places, buckets_sort_each,
)
from llamad.engine.sampler.candidates cimport TOP_P_FEW, TOP_P_FIRST, Candidates
from llamad.engine.sampler.exact_math cimport exps, sum_in_order, sum_of_squares
from llamad.engine.sampler.random cimport Random, random_double
from llamad.base.function_table cimport llamad_candidate, llamad_sampling
from llamad.engine.costs.sampler cimport TOPK_COLLECT_MAX, TOPK_MAX, UNDO_MAX
from llamad.engine.sampler.topk cimport topk_collect, topk_maxima, topk_n_maxima, topk_resolve, topk_select


# --- the scratch and the row ----------------------------------------------------------------------------------

cdef size_t _n_room(int32_t n) noexcept nogil:
    """Return how many candidates a list may hold, rounded up to whole cache lines."""
    return (<size_t>max(n, <int32_t>TOPK_COLLECT_MAX) + 15) & ~<size_t>15


cdef size_t scratch_bytes(int32_t n_vocab) noexcept nogil:
    cdef size_t n = _n_room(n_vocab)
    return (n * (2 * sizeof(llamad_candidate) + 2 * sizeof(float) + 1) + UNDO_MAX * sizeof(Undo)
            + <size_t>topk_n_maxima(n_vocab) * sizeof(float))


cdef float *row_maxima(void *scratch, int32_t n_vocab) noexcept nogil:
    """Return the address of the row's maxima in the scratch memory."""
    cdef Row row
    row_open(&row, NULL, n_vocab, scratch, 0)
    return row.m.maxima


cdef void row_open(Row *row, float *logits, int32_t n, void *scratch, int32_t has_maxima) noexcept nogil:
    cdef size_t n_room = _n_room(n)
    row.logits = row.given = logits
    row.n = n
    row.n_undo = 0
    row.has_maxima = has_maxima
    row.m.data = <llamad_candidate *>scratch
    row.m.spare = row.m.data + n_room
    row.m.own = <float *>(row.m.spare + n_room)
    row.m.exps = row.m.own + n_room
    row.m.undo = <Undo *>(row.m.exps + n_room)
    row.m.maxima = <float *>(row.m.undo + UNDO_MAX)
    row.m.places = <uint8_t *>(row.m.maxima + topk_n_maxima(n))


cdef void _restore(Row *row) noexcept nogil:
    while row.n_undo > 0:
        row.n_undo -= 1
        row.given[row.m.undo[row.n_undo].token] = row.m.undo[row.n_undo].logit


cdef void _make_own(Row *row) noexcept nogil:
    """Copy the row, so that further changes are made in the copy."""
    memcpy(row.m.own, row.logits, <size_t>row.n * sizeof(float))
    row.logits = row.m.own
    _restore(row)


cdef void row_set(Row *row, int32_t token, float logit) noexcept nogil:
    row.has_maxima = 0
    if row.logits == row.given:
        if row.n_undo == UNDO_MAX:
            _make_own(row)
        else:
            row.m.undo[row.n_undo].token = token
            row.m.undo[row.n_undo].logit = row.logits[token]
            row.n_undo += 1
    row.logits[token] = logit


cdef void row_close(Row *row) noexcept nogil:
    """Restore the given row."""
    _restore(row)
    row.logits = row.given


cdef void row_list(Row *row, Candidates *c) noexcept nogil:
    """List the whole vocabulary. A NaN would break the sorts, so it becomes -inf."""
    cdef int32_t i
    cdef float logit
    for i in range(row.n):
        logit = row.logits[i]
        c.data[i].id = i
        c.data[i].logit = logit if logit == logit else -INFINITY
        c.data[i].p = 0
    c.n = c.n_full = row.n
    c.is_sorted = 0


cdef void row_divide(Row *row, float temperature) noexcept nogil:
    cdef float *own = row.m.own
    cdef const float *logits = row.logits
    cdef int32_t i
    for i in range(row.n):
        own[i] = logits[i] / temperature
    row.logits = own
    row.has_maxima = 0
    _restore(row)


cdef float _largest(Row *row) noexcept nogil:
    """Return the largest logit. Computes the maxima if they are missing."""
    cdef float largest = topk_maxima(row.logits, row.n, row.m.maxima, row.has_maxima)
    row.has_maxima = 1
    return largest


cdef int _is_usual(float largest) noexcept nogil:
    """Return whether the largest logit is finite; other rows need a list of the whole vocabulary."""
    return largest > -FLT_MAX and largest <= FLT_MAX


# --- cuts -----------------------------------------------------------------------------------------------------

cdef int row_top_k(Row *row, int32_t k, Candidates *c, int leaves_open) noexcept nogil:
    """Cut the row to the k largest, and return 1; 0 if the row must become a list first. With leaves_open, the ids of
    equal logits are left open: row_resolve() finds that of a drawn one. Until then, samplers may look only at logits, and
    must leave the scratch memory of rows alone."""
    cdef int32_t n
    k = min(k, row.n)
    if k > TOPK_MAX:
        return 0
    n = topk_select(row.logits, row.n, k, c.data, row.m.maxima, row.has_maxima, leaves_open)
    row.has_maxima = 1
    row.k = k
    if n <= 0:
        return 0
    c.n = n
    c.n_full = k
    c.is_sorted = 1
    return 1


cdef int32_t row_resolve(const Row *row, Candidates *c, int32_t open) noexcept nogil:
    """Return the token of a drawn candidate whose id row_top_k() left open."""
    return topk_resolve(row.logits, row.n, row.k, row.m.maxima, c.spare, open)


cdef int row_min_p(Row *row, const llamad_sampling *s, Candidates *c) noexcept nogil:
    cdef float largest = _largest(row)
    cdef int32_t n
    if not _is_usual(largest):
        return 0
    n = topk_collect(row.logits, row.n, row.m.maxima, largest + logf(s.min_p), c.data)
    if n <= 0 or n < s.min_keep:
        return 0
    c.n = c.n_full = n
    c.is_sorted = 0
    return 1


cdef int row_largest(Row *row, Candidates *c) noexcept nogil:
    """Keep the first of the largest, and give all others no probability, as a temperature of 0 does."""
    cdef float largest = _largest(row)
    cdef int32_t n
    if not _is_usual(largest):
        return 0
    n = topk_collect(row.logits, row.n, row.m.maxima, largest, c.data)
    c.n = 1
    c.n_full = row.n
    c.is_sorted = 0
    return n > 0


cdef int row_top_n_sigma(Row *row, const llamad_sampling *s, Candidates *c) noexcept nogil:
    cdef float largest = _largest(row)
    cdef float total = 0, mean, least
    cdef const float *logits = row.logits
    cdef int32_t i, n = 0
    if not _is_usual(largest) or row.n < 2:
        return 0
    for i in range(row.n):
        n += logits[i] != -INFINITY
    for i in range(row.n):
        total += logits[i] if logits[i] != -INFINITY else 0
    mean = total / <float>n
    least = largest - s.top_n_sigma * sqrtf(sum_of_squares(logits, row.n, mean) / <float>n)
    if not least > -FLT_MAX:
        return 0
    c.n = topk_collect(logits, row.n, row.m.maxima, least, c.data)
    c.n_full = row.n
    c.is_sorted = 0
    return c.n > 0


# --- top_p ----------------------------------------------------------------------------------------------------

cdef int32_t _reach(Row *row, const llamad_sampling *s, float total, llamad_candidate *data, int32_t i, int32_t n,
                    float *running) noexcept nogil:
    """Add up the probabilities of the sorted candidates from i to n. Return how many are kept, or 0 if top_p is not
    reached."""
    while i < n:
        data[i].p = row.m.exps[data[i].id] / total
        running[0] += data[i].p
        i += 1
        if running[0] >= s.top_p and i >= s.min_keep:
            return i
    return 0


cdef int32_t _top_p_buckets(Row *row, const llamad_sampling *s, float total, Candidates *c,
                            int has_first) noexcept nogil:
    """Apply top_p in the general way: sort as many buckets as contain the mass, each separately. `has_first` means that
    the first few are known not to be enough."""
    cdef int32_t counts[BUCKETS_N]
    cdef double masses[BUCKETS_N]
    cdef double mass = 0
    cdef float running = 0
    cdef int32_t j, last, lowest = 0, first = BUCKETS_N - 1, kept, n_done = 0, n_counted = 0
    buckets_places(row.logits, row.n, row.m.places, counts)
    if not has_first:
        last = buckets_down_to(counts, TOP_P_FIRST)
        buckets_collect(row.logits, row.m.places, row.n, counts, first, last, c.data)
        buckets_sort_each(c.table, c.data, counts, last, TOP_P_FIRST)
        kept = _reach(row, s, total, c.data, 0, TOP_P_FIRST, &running)
        if kept:
            return kept
        running = 0
    while counts[lowest] == 0:
        lowest += 1
    buckets_masses(row.m.exps, row.m.places, row.n, masses)
    last = BUCKETS_N
    while last > 0 and not (mass > 1.0001 * s.top_p * total and n_counted >= s.min_keep):
        last -= 1
        mass += masses[last]
        n_counted += counts[last]
    while True:
        buckets_collect(row.logits, row.m.places, row.n, counts, first, last, c.data + n_done)
        for j in range(first, last - 1, -1):
            if j == lowest:
                c.table.sort_front(c.data + n_done, counts[j], counts[j])
            else:
                c.table.sort(c.data + n_done, counts[j])
            kept = _reach(row, s, total, c.data, n_done, n_done + counts[j], &running)
            if kept:
                return kept
            n_done += counts[j]
        if last == 0:
            return n_done
        first = last - 1
        last = 0


cdef int row_top_p(Row *row, const llamad_sampling *s, Candidates *c) noexcept nogil:
    cdef float largest = _largest(row), total, running = 0
    cdef int32_t n, kept = 0
    if row.n <= TOP_P_FEW or not _is_usual(largest):
        return 0
    exps(row.logits, row.n, largest, row.m.exps)
    total = sum_in_order(row.m.exps, row.n)
    n = topk_select(row.logits, row.n, TOP_P_FIRST, c.data, row.m.maxima, 1, 0)
    if n > 0:
        kept = _reach(row, s, total, c.data, 0, n, &running)
    if kept == 0:
        kept = _top_p_buckets(row, s, total, c, n == TOP_P_FIRST)
    c.n = c.n_full = kept
    c.is_sorted = 1
    return 1


# --- the draw -------------------------------------------------------------------------------------------------

cdef int32_t row_draw(Row *row, Random *random, double *total) noexcept nogil:
    """Draw a token of the whole vocabulary; m.exps then has the weights, whose sum is `total`. Return -1 if none is
    possible."""
    cdef float largest = _largest(row)
    cdef const float *p = row.m.exps
    cdef double drawn, running = 0
    cdef int32_t i
    if not _is_usual(largest) or row.n < 2:
        return -1
    exps(row.logits, row.n, largest, row.m.exps)
    total[0] = 0
    for i in range(row.n):
        total[0] += p[i]
    drawn = random_double(random) * total[0]
    for i in range(row.n):
        running += p[i]
        if running >= drawn:
            return i
    return row.n - 1
