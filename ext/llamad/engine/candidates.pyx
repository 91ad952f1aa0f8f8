# Owns: what each sampler does to a short list of candidates. Runs on sampler threads.
#
# Sums are taken in the order and the precision that llama.cpp takes them, because a cut or a draw may hang on the
# last bit; the build keeps the compiler from fusing multiplications and additions that llama.cpp's build does not fuse.
from libc.math cimport INFINITY, expf, fabsf, logf, powf
from libc.stdint cimport int32_t

from llamad.engine.random cimport Random, random_double, random_float
from llamad.engine.table cimport llamad_candidate, llamad_sampling, llamad_table


cdef void _sort(Candidates *c) noexcept nogil:
    if not c.is_sorted:
        c.table.sort(c.data, c.n, c.n)
    c.is_sorted = 1


cdef float _max(const Candidates *c) noexcept nogil:
    cdef float largest = c.data[0].logit
    cdef int32_t i
    if not c.is_sorted:
        for i in range(1, c.n):
            if largest < c.data[i].logit:
                largest = c.data[i].logit
    return largest


cdef void _softmax(Candidates *c) noexcept nogil:
    cdef float largest = _max(c), total = 0
    cdef int32_t i
    for i in range(c.n):
        c.data[i].p = expf(c.data[i].logit - largest)
        total += c.data[i].p
    for i in range(c.n):
        c.data[i].p /= total


cdef void candidates_top_k(Candidates *c, int32_t k) noexcept nogil:
    if k <= 0:
        return
    _sort(c)
    c.n = min(c.n, k)


cdef void candidates_top_p(Candidates *c, const llamad_sampling *s) noexcept nogil:
    cdef float total = 0
    cdef int32_t i
    if s.top_p >= 1:
        return
    _softmax(c)
    _sort(c)
    for i in range(c.n):
        total += c.data[i].p
        if total >= s.top_p and i + 1 >= s.min_keep:
            c.n = i + 1
            return


cdef void candidates_min_p(Candidates *c, const llamad_sampling *s) noexcept nogil:
    cdef float least
    cdef int32_t i, n = 0
    if s.min_p <= 0:
        return
    if not c.is_sorted:
        least = _max(c) + logf(s.min_p)
        for i in range(c.n):
            n += c.data[i].logit >= least
        if n > 0 and n >= s.min_keep:
            n = 0
            for i in range(c.n):
                if c.data[i].logit >= least:
                    c.data[n] = c.data[i]
                    n += 1
            c.n = n
            return
        _sort(c)
    least = c.data[0].logit + logf(s.min_p)
    i = 1
    while i < c.n and not (c.data[i].logit < least and i >= s.min_keep):
        i += 1
    c.n = i


cdef void candidates_typical(Candidates *c, const llamad_sampling *s) noexcept nogil:
    """Orders candidates by how far their surprise is from the expected one, and keeps the mass typical_p of them."""
    cdef float entropy = 0, total = 0
    cdef int32_t i, n = c.n
    cdef llamad_candidate *kept = c.data + n
    cdef float *scores = <float *>(kept + n)
    cdef int32_t *order = <int32_t *>(scores + n)
    if s.typical_p >= 1:
        return
    _sort(c)
    _softmax(c)
    for i in range(n):
        entropy += -c.data[i].p * logf(c.data[i].p)
    for i in range(n):
        scores[i] = fabsf(-logf(c.data[i].p) - entropy)
        order[i] = i
    c.table.order(scores, order, n)
    for i in range(n):
        total += c.data[order[i]].p
        if total > s.typical_p and (s.min_keep == 0 or i >= s.min_keep - 1):
            n = i + 1
            break
    for i in range(n):
        kept[i] = c.data[order[i]]
    for i in range(n):
        c.data[i] = kept[i]
    c.n = n
    c.is_sorted = 0


cdef void candidates_xtc(Candidates *c, const llamad_sampling *s, Random *random) noexcept nogil:
    cdef int32_t i, last = 0
    if s.xtc_probability <= 0 or s.xtc_threshold > 0.5 or c.n < 2:
        return
    if random_float(random) > s.xtc_probability:
        return
    _sort(c)
    _softmax(c)
    for i in range(c.n):
        if c.data[i].p < s.xtc_threshold:
            break
        last = i
    if c.n - last >= s.min_keep and last > 0:
        c.data += last
        c.n -= last


cdef void _divide(Candidates *c, float temperature) noexcept nogil:
    """A temperature of 0 leaves the first of the largest alone possible."""
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
    if c.n <= 1:
        return
    low = s.temperature - s.dynatemp_range
    low = low if low > 0 else 0
    high = s.temperature + s.dynatemp_range
    _sort(c)
    _softmax(c)
    for i in range(c.n):
        p = c.data[i].p
        if p > 0:
            entropy -= p * logf(p)
    _divide(c, low + (high - low) * powf(entropy / -logf(<float>1.0 / <float>c.n), s.dynatemp_exponent))


cdef int32_t candidates_draw(Candidates *c, Random *random) noexcept nogil:
    """The token drawn. One draw is used even where there is no choice."""
    cdef double drawn = random_double(random), total = 0, running = 0
    cdef float largest
    cdef int32_t i
    if c.n == 1:
        return c.data[0].id
    largest = _max(c)
    for i in range(c.n):
        c.data[i].p = expf(c.data[i].logit - largest)
        total += c.data[i].p
    drawn *= total
    for i in range(c.n):
        running += c.data[i].p
        if running >= drawn:
            return c.data[i].id
    return c.data[c.n - 1].id
