# Grammars for compiled code: opens a task's matcher by the number of its grammar. The C++ does the work (machine.hpp).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "llamad/grammar/grammar_api.h" nogil:
    int32_t LLAMAD_GRAMMAR_E_LATER
    ctypedef struct llamad_grammar:
        pass
    ctypedef struct llamad_matcher:
        pass
    ctypedef struct llamad_trie:
        pass
    ctypedef struct llamad_grammar_error:
        int32_t line
        int32_t column
        char reason[256]

cdef llamad_matcher *matcher_open(uint64_t grammar_id) noexcept nogil
cdef void matcher_close(llamad_matcher *matcher) noexcept nogil
cdef void matcher_set_allowance(llamad_matcher *matcher, int64_t n) noexcept nogil
cdef void matcher_cancel(llamad_matcher *matcher) noexcept nogil
cdef int32_t matcher_may_end(llamad_matcher *matcher) noexcept nogil
cdef int32_t matcher_allows(llamad_matcher *matcher, int32_t token) noexcept nogil
cdef int32_t matcher_accept(llamad_matcher *matcher, int32_t token) noexcept nogil
cdef int32_t matcher_mask(llamad_matcher *matcher, float *logits) noexcept nogil
cdef int32_t matcher_forced(llamad_matcher *matcher, int32_t *tokens, int32_t n_max) noexcept nogil
