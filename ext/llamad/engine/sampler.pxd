# A task's sampler, from its first to its last token: ours where the chain cuts to a few candidates early, else
# llama.cpp's chain through the table. Both pick the same token.
from libc.stdint cimport int32_t

from llamad.engine.random cimport Random
from llamad.engine.table cimport llamad_bias, llamad_candidate, llamad_sampling, llamad_table

ctypedef struct History:
    int32_t *ring            # the last n_max tokens
    int32_t n_max
    int32_t n
    int32_t at
    int32_t *counts          # of each token of the vocabulary, in the ring

ctypedef struct Sampler:
    const llamad_table *table
    void *chain              # llama.cpp's; NULL where this one is ours
    llamad_sampling sampling
    int32_t n_vocab
    int32_t k
    int32_t n_after          # samplers behind the first top_k
    unsigned char after[32]
    llamad_bias *bias
    int32_t n_bias
    History history          # counts is NULL without penalties
    Random random
    Random xtc_random
    llamad_candidate *left   # what the last pick drew from, in its scratch
    int32_t n_left

cdef Sampler *sampler_open(const llamad_table *table, const void *vocab, int32_t n_vocab,
                           const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                           const char *breakers, int32_t n_breakers, int32_t can_be_ours) noexcept nogil
cdef int32_t sampler_history_wanted(const llamad_sampling *sampling) noexcept nogil
cdef void sampler_accept(Sampler *sampler, int32_t token) noexcept nogil
cdef int32_t sampler_pick(Sampler *sampler, float *logits, void *scratch) noexcept nogil
cdef void sampler_candidates(Sampler *sampler, const llamad_candidate **data, int32_t *n) noexcept nogil
cdef void sampler_close(Sampler *sampler) noexcept nogil
cdef size_t sampler_scratch_bytes(int32_t n_vocab) noexcept nogil
