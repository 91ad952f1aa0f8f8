# DRY: a penalty for the tokens that would continue a repetition.
from libc.stdint cimport int32_t, uint8_t

from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.logits_row cimport Row
from llamad.base.function_table cimport llamad_sampling

ctypedef struct Dry:
    int32_t *tokens          # the last n_max tokens are the last n before `end`; NULL: there is no DRY
    int32_t n_max
    int32_t n
    int32_t end
    int32_t *repeats         # how long a repetition ends at each of them
    int32_t *longest         # of each token of the vocabulary: the repetition it would continue, plus 1
    int32_t *found           # the tokens that have one
    int32_t n_found
    int32_t *breakers        # as dry_breakers.pyx packs them
    uint8_t *is_head         # a bit for each token of the vocabulary: whether a breaker begins with it

cdef int dry_open(Dry *dry, const llamad_sampling *s, int32_t n_vocab, const int32_t *breakers,
                  int32_t n_breakers) noexcept nogil
cdef void dry_close(Dry *dry) noexcept nogil
cdef void dry_accept(Dry *dry, int32_t token) noexcept nogil
cdef int dry_find(Dry *dry, const llamad_sampling *s) noexcept nogil
cdef void dry_forget(Dry *dry) noexcept nogil
cdef void dry_to_row(const Dry *dry, const llamad_sampling *s, Row *row) noexcept nogil
cdef void dry_to_list(const Dry *dry, const llamad_sampling *s, Candidates *c) noexcept nogil
