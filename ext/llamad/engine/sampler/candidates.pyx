# Owns: what each sampler does to a list of candidates. Runs on sampler threads.
#
# Sums are computed in llama.cpp's order and precision, because a cut or a draw may depend on the last bit. The build
# keeps the compiler from fusing multiplications and additions that llama.cpp's build does not fuse.
from libc.float cimport FLT_MAX
from libc.math cimport INFINITY, expf, fabsf, logf, powf, sqrtf
from libc.stdint cimport int32_t
from libc.string cimport memcpy

from llamad.engine.sampler.llama_sort cimport buckets_sort
from llamad.engine.sampler.random cimport Random, random_double
from llamad.base.function_table cimport llamad_candidate, llamad_sampling

cdef enum:
    FEW = 128            # up to this size llama.cpp sorts without buckets


cdef void _sort_front(Candidates *c, int32_t k) noexcept nogil:
    """Move the k largest to the front, sorted as llama.cpp would sort them."""
    if k <= FEW:
        c.table.sort_front(c.data, c.n, k)
        return
    buckets_sort(c.table, c.data, c.n, k, c.spare, c.places)
    memcpy(c.data, c.spare, <size_t>k * sizeof(llamad_candidate))


cdef void candidates_sort(Candidates *c) noexcept nogil:
    cdef int32_t i
    if c.is_sorted:
        return
    _sort_front(c, c.n)
    c.is_sorted = 1
    if c.n < c.n_full:
        for i in range(1, c.n):
            if c.data[i].logit == c.data[i - 1].logit:
                c.redo = 1  # the order of equal logits depends on the missing candidates
                return


cdef float _max(const Candidates *c) noexcept nogil:
    cdef float largest = c.data[0].logit
    cdef int32_t i
    if not c.is_sorted:
        for i in range(1, c.n):
            if largest < c.data[i].logit:
                largest = c.data[i].logit
    return largest


cdef void candidates_softmax(Candidates *c) noexcept nogil:
    cdef float largest = _max(c), total = 0
    cdef int32_t i
    for i in range(c.n):
        c.data[i].p = expf(c.data[i].logit - largest)
        total += c.data[i].p
    for i in range(c.n):
        c.data[i].p /= total


cdef void candidates_check(Candidates *c) noexcept nogil:
    """If no candidate has any probability, the missing ones are equivalent to the rest: redo."""
    if c.n < c.n_full and not _max(c) > -INFINITY:
        c.redo = 1


cdef void candidates_top_k(Candidates *c, int32_t k) noexcept nogil:
    if k <= 0:
        return
    k = min(k, c.n_full)
    if not c.is_sorted:
        if c.n < c.n_full:
            candidates_sort(c)
        else:
            _sort_front(c, k)
            c.is_sorted = 1
    c.n_full = k
    c.n = min(c.n, k)


cdef void _top_p_many(Candidates *c, const llamad_sampling *s) noexcept nogil:
    """Apply top_p to a long unsorted list: sort the first few, and all of it only if those are not enough."""
    cdef float total = 0
    cdef int32_t i, k = TOP_P_FIRST
    buckets_sort(c.table, c.data, c.n, k, c.spare, c.places)
    for i in range(c.n):
        total += c.spare[i].p
        if total >= s.top_p and i + 1 >= s.min_keep:
            break
        if i == k - 1:
            k = c.n
            buckets_sort(c.table, c.data, c.n, k, c.spare, c.places)
    else:
        i = c.n - 1
    memcpy(c.data, c.spare, <size_t>(i + 1) * sizeof(llamad_candidate))
    c.n = c.n_full = i + 1
    c.is_sorted = 1


cdef void candidates_top_p(Candidates *c, const llamad_sampling *s) noexcept nogil:
    cdef float total = 0
    cdef int32_t i
    if s.top_p >= 1:
        return
    candidates_softmax(c)
    if not c.is_sorted and c.n == c.n_full and c.n > TOP_P_FEW:
        _top_p_many(c, s)
        return
    candidates_sort(c)
    for i in range(c.n):
        total += c.data[i].p
        if total >= s.top_p and i + 1 >= s.min_keep:
            c.n = c.n_full = i + 1
            return
    if total >= s.top_p:
        c.n_full = min(c.n_full, max(c.n, s.min_keep))


cdef void candidates_min_p(Candidates *c, const llamad_sampling *s) noexcept nogil:
    cdef float largest = -FLT_MAX, least
    cdef int32_t i, n = 0
    if s.min_p <= 0:
        return
    if not c.is_sorted:
        for i in range(c.n):
            if largest < c.data[i].logit:
                largest = c.data[i].logit
        least = largest + logf(s.min_p)
        for i in range(c.n):
            n += c.data[i].logit >= least
        if n > 0 and n >= s.min_keep:
            n = 0
            for i in range(c.n):
                if c.data[i].logit >= least:
                    c.data[n] = c.data[i]
                    n += 1
            c.n = c.n_full = n
            return
        candidates_sort(c)
    least = c.data[0].logit + logf(s.min_p)
    i = 1
    while i < c.n_full and not ((i >= c.n or c.data[i].logit < least) and i >= s.min_keep):
        i += 1
    c.n_full = i
    c.n = min(c.n, i)


cdef void candidates_typical(Candidates *c, const llamad_sampling *s) noexcept nogil:
    """Order candidates by the distance of their surprise from the expected one, and keep a mass of typical_p."""
    cdef float entropy = 0, total = 0
    cdef int32_t i, n = c.n
    if s.typical_p >= 1:
        return
    if c.n < c.n_full:
        c.redo = 1  # one candidate without probability makes the entropy, and so the order, NaN
        return
    candidates_sort(c)
    candidates_softmax(c)
    for i in range(n):
        entropy += -c.data[i].p * logf(c.data[i].p)
    for i in range(n):
        c.scores[i] = fabsf(-logf(c.data[i].p) - entropy)
        if entropy == entropy and c.scores[i] != c.scores[i]:
            c.scores[i] = INFINITY  # all scores may be NaN, but a mix of NaN and numbers cannot be sorted
        c.order[i] = i
    c.table.order(c.scores, c.order, n)
    for i in range(n):
        total += c.data[c.order[i]].p
        if total > s.typical_p and (s.min_keep == 0 or i >= s.min_keep - 1):
            n = i + 1
            break
    for i in range(n):
        c.spare[i] = c.data[c.order[i]]
    memcpy(c.data, c.spare, <size_t>n * sizeof(llamad_candidate))
    c.n = c.n_full = n
    c.is_sorted = 0


cdef void candidates_tail_free(Candidates *c, const llamad_sampling *s) noexcept nogil:
    """Cut where the curve of the sorted probabilities becomes flat: at the mass tfs_z of the absolute second
    derivative. llama.cpp has removed this sampler; this is the arithmetic that it had."""
    cdef float total = 0, running = 0
    cdef int32_t i, n = c.n - 2
    if s.tfs_z >= 1 or c.n_full <= 2:
        return
    if c.n < c.n_full:
        c.redo = 1
        return
    candidates_sort(c)
    candidates_softmax(c)
    for i in range(n):
        c.scores[i] = fabsf((c.data[i].p - c.data[i + 1].p) - (c.data[i + 1].p - c.data[i + 2].p))
        total += c.scores[i]
    for i in range(n):
        running += c.scores[i] / total if total > <float>1e-6 else <float>1.0 / <float>n
        if running > s.tfs_z and i >= max(s.min_keep, 1):
            c.n = c.n_full = i
            return


cdef void candidates_top_n_sigma(Candidates *c, const llamad_sampling *s) noexcept nogil:
    """Set logits that are more than n standard deviations below the largest to -inf."""
    cdef float largest, total = 0, mean = 0, squares = 0, deviation = 0, away
    cdef int32_t i, n = 0
    if s.top_n_sigma <= 0 or c.n_full <= 1:
        return
    largest = c.data[0].logit
    for i in range(c.n):
        if c.data[i].logit != -INFINITY:
            if largest < c.data[i].logit:
                largest = c.data[i].logit
            total += c.data[i].logit
            n += 1
    if n > 0:
        mean = total / <float>n
    for i in range(c.n):
        if c.data[i].logit != -INFINITY:
            away = c.data[i].logit - mean
            squares = <float>(<double>squares + <double>away * <double>away)
    if n > 0:
        deviation = sqrtf(squares / <float>n)
    for i in range(c.n):
        if c.data[i].logit < largest - s.top_n_sigma * deviation:
            c.data[i].logit = -INFINITY


cdef void candidates_xtc(Candidates *c, const llamad_sampling *s) noexcept nogil:
    """Make the cut. The caller has drawn whether there is one."""
    cdef int32_t i, last = 0
    if c.n < c.n_full and s.xtc_threshold <= 0:
        c.redo = 1  # the last of the missing candidates would stay
        return
    candidates_sort(c)
    candidates_softmax(c)
    for i in range(c.n):
        if not c.data[i].p >= s.xtc_threshold:
            break
        last = i
    if c.n_full - last >= s.min_keep and last > 0:
        c.data += last
        c.n -= last
        c.n_full -= last


cdef void _divide(Candidates *c, float temperature) noexcept nogil:
    """Divide the logits by the temperature. At 0, only the first of the largest stays possible."""
    cdef int32_t i, best = 0
    if temperature > 0:
        for i in range(c.n):
            c.data[i].logit /= temperature
        return
    for i in range(1, c.n):
        if c.data[i].logit > c.data[best].logit:
            c.data[best].logit = -INFINITY
            best = i
        else:
            c.data[i].logit = -INFINITY


cdef void candidates_temperature(Candidates *c, const llamad_sampling *s) noexcept nogil:
    cdef float low, high, entropy = 0, p
    cdef int32_t i
    if s.dynatemp_range <= 0:
        _divide(c, s.temperature)
        return
    if c.n_full <= 1:
        return
    low = s.temperature - s.dynatemp_range
    low = low if low > 0 else 0
    high = s.temperature + s.dynatemp_range
    candidates_sort(c)
    candidates_softmax(c)
    for i in range(c.n):
        p = c.data[i].p
        if p > 0:
            entropy -= p * logf(p)
    _divide(c, low + (high - low) * powf(entropy / -logf(<float>1.0 / <float>c.n_full), s.dynatemp_exponent))


cdef int32_t candidates_draw(Candidates *c, Random *random) noexcept nogil:
    """Draw a token. This uses one random number even if there is no choice."""
    cdef double drawn, running = 0
    cdef float largest = _max(c)
    cdef int32_t i
    if c.n < c.n_full and not (largest > -INFINITY and largest < INFINITY):
        # Nothing is possible, or a tiny temperature led to infinity: llama.cpp takes the last candidate, which may be a
        # missing one.
        c.redo = 1
        return -1
    drawn = random_double(random)
    c.total = 0
    if c.n_full == 1:
        c.data[0].p = 1
        c.total = 1
        return c.data[0].id
    for i in range(c.n):
        c.data[i].p = expf(c.data[i].logit - largest)
        c.total += c.data[i].p
    drawn *= c.total
    for i in range(c.n):
        running += c.data[i].p
        if running >= drawn:
            return c.data[i].id
    return c.data[c.n - 1].id


cdef int32_t candidates_place(Candidates *c, Random *random) noexcept nogil:
    """Draw an index of the list as libstdc++'s discrete_distribution does. A list of one needs no random number."""
    cdef double total = 0, running = 0, drawn
    cdef int32_t i
    if c.n < 2:
        return 0
    for i in range(c.n):
        total += <double>c.data[i].p
    drawn = random_double(random)
    for i in range(c.n - 1):
        running += <double>c.data[i].p / total
        if not running < drawn:  # the same result as a binary search, even if a sum is NaN
            return i
    return c.n - 1


cdef void candidates_finish(Candidates *c) noexcept nogil:
    """Compute the final probabilities after a draw, largest first; all are 0 if nothing was possible."""
    cdef int32_t i
    cdef int is_usual = c.total > 0 and c.total < INFINITY
    for i in range(c.n):
        c.data[i].p = <float>(c.data[i].p / c.total) if is_usual else 0
    c.total = 1
    if not c.is_sorted:
        c.table.sort(c.data, c.n)
        c.is_sorted = 1
