# The probabilities reported with each sampled token.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.sampler.sampler cimport Sampler
from llamad.protocol.messages cimport TokenProb

ctypedef struct Probs:
    int32_t n_top            # 0: none are requested
    int32_t is_post          # report what the sampler left, and not the model's logits
    TokenProb *rows          # 1 + n_top for each token that is not sent yet, and for the one being sampled
    int32_t n_tokens
    int32_t n_ahead          # tokens of this step that were sampled but not taken yet; their rows come next
    int64_t n_rows_max
    double log_sum           # the log of the sum of exponentials of the current row

cdef void probs_begin(Probs *probs, int32_t n_top, int32_t is_post) noexcept nogil
cdef void probs_free(Probs *probs) noexcept nogil
cdef int probs_reserve(Probs *probs, int32_t n_more) noexcept nogil
cdef int probs_reserve_for(Probs *probs, int32_t n_tokens) noexcept nogil
cdef void probs_before(Probs *probs, const float *row, int32_t n_vocab, void *scratch) noexcept nogil
cdef void probs_after(Probs *probs, Sampler *sampler, const float *row, int32_t sampled) noexcept nogil
cdef void probs_of(Probs *probs, const float *row, int32_t n_vocab, int32_t token, void *scratch) noexcept nogil
cdef void probs_sent(Probs *probs, int32_t n_tokens) noexcept nogil
