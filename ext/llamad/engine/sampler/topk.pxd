# Finds the largest logits of a row: the first k of them, sorted, or all that reach a threshold.
from libc.stdint cimport int32_t

from llamad.base.function_table cimport llamad_candidate

cdef extern from "llamad/engine/sampler/topk.h" nogil:
    enum:
        TOPK_FOLD
        TOPK_LANES
        TOPK_PIECE

cdef enum:
    # The id of the first of the k largest is this if its logit is not the only one of its kind, that of the second is one
    # less, and so on: topk_resolve() finds the token.
    TOPK_OPEN = -1000

cdef int32_t topk_n_maxima(int32_t n) noexcept nogil
cdef float topk_maxima(const float *row, int32_t n, float *maxima, int has_maxima) noexcept nogil
cdef int32_t topk_select(const float *row, int32_t n, int32_t k, llamad_candidate *out, float *maxima,
                         int has_maxima, int leaves_open) noexcept nogil
cdef int32_t topk_resolve(const float *row, int32_t n, int32_t k, const float *maxima, llamad_candidate *scratch,
                          int32_t open) noexcept nogil
cdef int32_t topk_collect(const float *row, int32_t n, const float *maxima, float least,
                          llamad_candidate *out) noexcept nogil
