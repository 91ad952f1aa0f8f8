# Owns: the adaptive-p sampler, which replaces the plain draw. Runs on sampler threads.
from libc.math cimport INFINITY, fabsf
from libc.stdint cimport int32_t

from llamad.engine.sampler.candidates cimport candidates_place, candidates_softmax

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
