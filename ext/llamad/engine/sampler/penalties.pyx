# Owns: how often the last tokens occurred, and the penalties on their logits. Belongs to one sampler.
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc

from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.logits_row cimport Row, row_set
from llamad.base.function_table cimport llamad_sampling

cdef extern from *:
    """
    /* On processors that can multiply and add in one instruction (ARM64), compilers use that, and round once. In
     * llama.cpp a branch lies between this product and its sum, so that they are rounded separately. */
    static inline float unfused_product(float a, float b) {
        volatile float product = a * b;
        return product;
    }
    """
    float unfused_product(float a, float b) noexcept nogil


cdef int penalties_open(Penalties *penalties, const llamad_sampling *s, int32_t n_vocab) noexcept nogil:
    """Return 0, or -1 if memory ran out."""
    penalties.n_max = s.repeat_last_n
    penalties.ring = <int32_t *>malloc(<size_t>penalties.n_max * sizeof(int32_t))
    penalties.counts = <int32_t *>calloc(<size_t>n_vocab, sizeof(int32_t))
    return 0 if penalties.ring != NULL and penalties.counts != NULL else -1


cdef void penalties_close(Penalties *penalties) noexcept nogil:
    free(penalties.ring)
    free(penalties.counts)


cdef void penalties_accept(Penalties *penalties, int32_t token) noexcept nogil:
    if penalties.counts == NULL:
        return
    if penalties.n == penalties.n_max:
        penalties.counts[penalties.ring[penalties.at]] -= 1
    else:
        penalties.n += 1
    penalties.ring[penalties.at] = token
    penalties.counts[token] += 1
    penalties.at = (penalties.at + 1) % penalties.n_max


cdef float _penalized(const llamad_sampling *s, float logit, int32_t count) noexcept nogil:
    logit = logit * s.repeat_penalty if logit <= 0 else logit / s.repeat_penalty
    return logit - (unfused_product(<float>count, s.frequency_penalty) + s.presence_penalty)


cdef void penalties_to_row(Penalties *penalties, const llamad_sampling *s, Row *row) noexcept nogil:
    """Penalize each token of the ring once: the count of a token that is done is negative meanwhile."""
    cdef int32_t i, token, count
    for i in range(penalties.n):
        token = penalties.ring[i]
        count = penalties.counts[token]
        if count <= 0:
            continue
        penalties.counts[token] = -count
        if s.penalize_nl or token != s.newline_token:
            row_set(row, token, _penalized(s, row.logits[token], count))
    for i in range(penalties.n):
        token = penalties.ring[i]
        if penalties.counts[token] < 0:
            penalties.counts[token] = -penalties.counts[token]


cdef void penalties_to_list(const Penalties *penalties, const llamad_sampling *s, Candidates *c) noexcept nogil:
    cdef int32_t i, token
    for i in range(c.n):
        token = c.data[i].id
        if penalties.counts[token] > 0 and (s.penalize_nl or token != s.newline_token):
            c.data[i].logit = _penalized(s, c.data[i].logit, penalties.counts[token])
    c.is_sorted = 0
