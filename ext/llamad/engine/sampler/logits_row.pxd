# A row of logits that a sampler may change and restores afterwards, and the samplers that work on it in place.
from libc.stdint cimport int32_t, uint8_t

from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.random cimport Random
from llamad.base.function_table cimport llamad_candidate, llamad_sampling

ctypedef struct Undo:
    int32_t token
    float logit

# The memory of one sampler thread: everything that sampling needs.
ctypedef struct Scratch:
    llamad_candidate *data
    llamad_candidate *spare
    float *own
    float *exps
    float *maxima
    Undo *undo
    uint8_t *places

ctypedef struct Row:
    float *logits            # the current logits: in the given row, or in the sampler's own copy
    float *given
    int32_t n
    int32_t n_undo
    int32_t has_maxima       # the scratch memory has the maxima of the current logits
    int32_t k                # of row_top_k()
    Scratch m

cdef size_t scratch_bytes(int32_t n_vocab) noexcept nogil
cdef float *row_maxima(void *scratch, int32_t n_vocab) noexcept nogil
cdef void row_open(Row *row, float *logits, int32_t n, void *scratch, int32_t has_maxima) noexcept nogil
cdef void row_set(Row *row, int32_t token, float logit) noexcept nogil
cdef void row_close(Row *row) noexcept nogil
cdef void row_list(Row *row, Candidates *c) noexcept nogil
cdef int row_top_k(Row *row, int32_t k, Candidates *c, int leaves_open) noexcept nogil
cdef int32_t row_resolve(const Row *row, Candidates *c, int32_t open) noexcept nogil
cdef int row_top_p(Row *row, const llamad_sampling *s, Candidates *c) noexcept nogil
cdef int row_min_p(Row *row, const llamad_sampling *s, Candidates *c) noexcept nogil
cdef int row_top_n_sigma(Row *row, const llamad_sampling *s, Candidates *c) noexcept nogil
cdef int row_largest(Row *row, Candidates *c) noexcept nogil
cdef void row_divide(Row *row, float temperature) noexcept nogil
cdef int32_t row_draw(Row *row, Random *random, double *total) noexcept nogil
