# Repetition, presence and frequency penalties.
from libc.stdint cimport int32_t

from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.logits_row cimport Row
from llamad.base.function_table cimport llamad_sampling

ctypedef struct Penalties:
    int32_t *ring            # the last n_max tokens
    int32_t n_max
    int32_t n
    int32_t at
    int32_t *counts          # how often each token of the vocabulary is in the ring; NULL: there are no penalties

cdef int penalties_open(Penalties *penalties, const llamad_sampling *s, int32_t n_vocab) noexcept nogil
cdef void penalties_close(Penalties *penalties) noexcept nogil
cdef void penalties_accept(Penalties *penalties, int32_t token) noexcept nogil
cdef void penalties_to_row(Penalties *penalties, const llamad_sampling *s, Row *row) noexcept nogil
cdef void penalties_to_list(const Penalties *penalties, const llamad_sampling *s, Candidates *c) noexcept nogil
