# The fake's vocabulary and sampler, for the function table.
from libc.stdint cimport int32_t

from llamad.base.function_table cimport llamad_bias, llamad_candidate, llamad_sampling, llamad_tokenize_limits

cdef enum:
    BOS = 0
    EOS = 1
    FIRST_BYTE = 3

cdef int32_t fake_tokenize(const void *vocab, const char *text, int32_t n_text, int32_t *tokens, int32_t n_max,
                           int32_t add_special, int32_t parse_special,
                           const llamad_tokenize_limits *limits) noexcept nogil
cdef int32_t fake_piece(const void *vocab, int32_t token, char *buf, int32_t n_buf, int32_t special) noexcept nogil
cdef int32_t fake_detokenize(const void *vocab, const int32_t *tokens, int32_t n_tokens, char *text, int32_t n_max,
                             int32_t remove_special, int32_t unparse_special) noexcept nogil
cdef int32_t fake_is_eog(const void *vocab, int32_t token) noexcept nogil
cdef void *fake_sampler_open(const void *vocab, const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                             const char *breakers, int32_t n_breakers) noexcept nogil
cdef void fake_sampler_accept(void *sampler, int32_t token) noexcept nogil
cdef int32_t fake_sampler_sample(void *sampler, const float *logits, int32_t n_vocab, void *scratch,
                                 llamad_candidate **data, int32_t *n) noexcept nogil
cdef void fake_sampler_close(void *sampler) noexcept nogil
cdef void fake_sort(llamad_candidate *data, int32_t n) noexcept nogil
cdef void fake_sort_front(llamad_candidate *data, int32_t n, int32_t k) noexcept nogil
cdef void fake_order(const float *scores, int32_t *order, int32_t n) noexcept nogil
