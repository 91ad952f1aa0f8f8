# The samplers that work on a few candidates: llama.cpp's arithmetic, step by step.
from libc.stdint cimport int32_t

from llamad.engine.random cimport Random
from llamad.engine.table cimport llamad_candidate, llamad_sampling, llamad_table

# `data` has room for three times as many behind the n: typical sampling works there.
ctypedef struct Candidates:
    const llamad_table *table
    llamad_candidate *data
    int32_t n
    int32_t is_sorted

cdef void candidates_top_k(Candidates *c, int32_t k) noexcept nogil
cdef void candidates_top_p(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_min_p(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_typical(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef void candidates_xtc(Candidates *c, const llamad_sampling *s, Random *random) noexcept nogil
cdef void candidates_temperature(Candidates *c, const llamad_sampling *s) noexcept nogil
cdef int32_t candidates_draw(Candidates *c, Random *random) noexcept nogil
