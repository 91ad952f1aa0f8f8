# DRY: a penalty for the tokens that would continue a repetition.
from libc.stdint cimport int32_t, uint8_t

from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.logits_row cimport Row
from llamad.base.function_table cimport llamad_sampling

ctypedef struct Dry:
    int32_t *tokens          # the history: its last n tokens end before `end`; NULL: there is no DRY
    int32_t n_max
    int32_t n
    int32_t end
    int32_t *repeats         # for each of them, the length of the repetition that ends there
    int32_t *longest         # for each token of the vocabulary: the length of the repetition it would continue, plus 1
    int32_t *penalized       # the tokens that would continue a repetition
    int32_t n_penalized
    int32_t *breakers        # in the format of dry_breakers.pyx
    uint8_t *is_head         # a bit for each token of the vocabulary: a breaker begins with it

cdef int dry_open(Dry *dry, const llamad_sampling *s, int32_t n_vocab, const int32_t *breakers,
                  int32_t n_breakers) noexcept nogil
cdef void dry_close(Dry *dry) noexcept nogil
cdef void dry_accept(Dry *dry, int32_t token) noexcept nogil
cdef int dry_find(Dry *dry, const llamad_sampling *s) noexcept nogil
cdef void dry_forget(Dry *dry) noexcept nogil
cdef void dry_to_row(const Dry *dry, const llamad_sampling *s, Row *row) noexcept nogil
cdef void dry_to_list(const Dry *dry, const llamad_sampling *s, Candidates *c) noexcept nogil
