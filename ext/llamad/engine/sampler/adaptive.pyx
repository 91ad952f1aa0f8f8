# Owns: adaptive-p and the two versions of Mirostat, which replace the plain draw. Runs on sampler threads. The arithmetic
# is llama.cpp's, in single precision and in its order.
from libc.math cimport INFINITY, fabsf, log2f, logf, powf
from libc.stdint cimport int32_t

from llamad.engine.sampler.candidates cimport candidates_place, candidates_softmax, candidates_sort, candidates_top_k

cdef enum:
    ESTIMATE_MAX = 100       # version 1 estimates the distribution's slope from this many of the likeliest tokens

# As in llama.cpp, a probability's distance from the target is measured in widths of 0.3.
cdef float WIDTHS = <float>1.0 / <float>0.3
cdef float PEAK = 5
cdef float SHARPNESS = 10
cdef float DECAY_MAX = 0.99


cdef void adaptive_open(Adaptive *adaptive, const llamad_sampling *s) noexcept nogil:
    adaptive.is_on = 1
    adaptive.decay = min(max(s.adaptive_decay, <float>0), DECAY_MAX)
    adaptive.weighted = s.adaptive_target / (<float>1 - adaptive.decay)
    adaptive.weight = <float>1 / (<float>1 - adaptive.decay)
    adaptive.drawn = -1


cdef void adaptive_accept(Adaptive *adaptive, int32_t token) noexcept nogil:
    if adaptive.is_on and adaptive.drawn == token:
        adaptive.weighted = adaptive.drawn_p + adaptive.decay * adaptive.weighted
        adaptive.weight = <float>1 + adaptive.decay * adaptive.weight
    adaptive.drawn = -1


cdef float _clamped(float value) noexcept nogil:
    return <float>0 if value < 0 else <float>1 if value > 1 else value


cdef int32_t adaptive_draw(Adaptive *adaptive, const llamad_sampling *s, Candidates *c, Random *random) noexcept nogil:
    cdef float target, distance
    cdef int32_t i
    if c.n < c.n_full:
        c.redo = 1
        return -1
    candidates_softmax(c)
    c.total = 1
    if s.adaptive_target < 0:
        return c.data[candidates_place(c, random)].id
    target = _clamped(s.adaptive_target)
    target = _clamped(<float>2 * target - adaptive.weighted / adaptive.weight)
    for i in range(c.n):
        c.scores[i] = c.data[i].p
        if c.data[i].logit == -INFINITY:
            continue
        distance = fabsf((c.data[i].p - target) * WIDTHS)
        c.data[i].logit = PEAK - SHARPNESS * distance * distance / (<float>1 + distance)
    candidates_softmax(c)
    i = candidates_place(c, random)
    c.is_sorted = 0
    adaptive.drawn = c.data[i].id
    adaptive.drawn_p = c.scores[i]
    return adaptive.drawn


cdef void mirostat_open(Mirostat *mirostat, const llamad_sampling *s) noexcept nogil:
    mirostat.version = s.mirostat
    mirostat.limit = <float>2 * s.mirostat_tau


cdef int32_t _rank(float limit, int32_t n_vocab, const Candidates *c) noexcept nogil:
    """Return how many of the sorted candidates stay in version 1. It takes the distribution as Zipf's, and estimates its
    exponent from the likeliest tokens."""
    cdef float products = 0, squares = 0, step, fall, exponent, excess, rank
    cdef int32_t i
    for i in range(min(<int32_t>ESTIMATE_MAX, c.n) - 1):
        step = logf(<float>(i + 2) / <float>(i + 1))
        fall = logf(c.data[i].p / c.data[i + 1].p)
        products += step * fall
        squares += step * step
    exponent = products / squares
    excess = exponent - 1
    rank = powf((excess * powf(2, limit)) / (1 - powf(<float>n_vocab, -excess)), 1 / exponent)
    return max(<int32_t>rank, 1)


cdef int32_t mirostat_draw(Mirostat *mirostat, const llamad_sampling *s, int32_t n_vocab, Candidates *c,
                           Random *random) noexcept nogil:
    """Draw a token, and move the limit by what the token's surprise missed the target."""
    cdef int32_t i
    if c.n < c.n_full:
        c.redo = 1
        return -1
    candidates_sort(c)
    candidates_softmax(c)
    if mirostat.version == 1:
        candidates_top_k(c, _rank(mirostat.limit, n_vocab, c))
    else:
        i = 0
        while i < c.n and not -log2f(c.data[i].p) > mirostat.limit:
            i += 1
        c.n = c.n_full = max(i, 1)
    candidates_softmax(c)
    c.total = 1
    i = candidates_place(c, random)
    mirostat.limit = mirostat.limit - s.mirostat_eta * (-log2f(c.data[i].p) - s.mirostat_tau)
    return c.data[i].id
