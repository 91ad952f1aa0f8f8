# The samplers that work on a list of candidates, with exactly llama.cpp's arithmetic.
from libc.stdint cimport int32_t, uint8_t

from llamad.engine.sampler.random cimport Random
from llamad.base.function_table cimport llamad_candidate, llamad_sampling, llamad_table

cdef enum:
    # As in llama.cpp: top_p sorts the first TOP_P_FIRST of an unsorted list longer than TOP_P_FEW before it sorts all.
    TOP_P_FEW = 1024
    TOP_P_FIRST = 256

# The candidates as llama.cpp's chain would have them at this point. If n is smaller than n_full, the missing ones have
# no probability (a logit of -inf): they count, but nothing else about them matters. If it would matter, `redo` is set,
# and the caller starts again with the whole list.
ctypedef struct Candidates:
    const llamad_table *table
    llamad_candidate *data
    int32_t n
    int32_t n_full
    int32_t is_sorted
    int32_t redo
    double total             # after a draw: the sum of p over all candidates
    llamad_candidate *spare  # room for as many as `data` began with, like the next three
    float *scores
    int32_t *order
    uint8_t *places

cdef void candidates_sort(Candidates *c) noexcept nogil
cdef void candidates_softmax(Candidates *c) noexcept nogil
cdef void candidates_check(Candidates *c) noexcept nogil
cdef void candidates_top_k(Candidates *c, int32_t k) noexcept nogil
cdef void candidates_top_p(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_min_p(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_typical(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_tail_free(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_top_n_sigma(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_xtc(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_temperature(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef int32_t candidates_draw(Candidates *c, Random *random) noexcept nogil
cdef int32_t candidates_place(Candidates *c, Random *random) noexcept nogil
cdef void candidates_finish(Candidates *c) noexcept nogil
