# A task's sampler, from its first to its last token. llama.cpp's own chain, through the function table, is for tests.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.sampler.adaptive cimport Adaptive, Mirostat
from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.dry cimport Dry
from llamad.engine.sampler.infill cimport Infill
from llamad.engine.sampler.penalties cimport Penalties
from llamad.engine.sampler.random cimport Random
from llamad.engine.sampler.logits_row cimport Row
from llamad.base.function_table cimport llamad_bias, llamad_candidate, llamad_sampling, llamad_table
from llamad.protocol.messages cimport SamplerMark

# Where the last token was sampled from, for sampler_candidates().
cdef enum SampledFrom:
    FROM_NOTHING = 0
    FROM_LIST = 1        # candidates
    FROM_ROW = 2         # the whole vocabulary: the row's exps
    FROM_CHAIN = 3       # the candidates that llama.cpp's chain left

ctypedef struct Sampler:
    const llamad_table *table
    void *chain              # llama.cpp's chain; NULL if the chain is implemented here
    const void *vocab
    llamad_sampling sampling
    int32_t n_vocab
    int32_t n_steps          # the samplers that have an effect, in order
    unsigned char steps[33]
    llamad_bias *bias
    int32_t n_bias
    Penalties penalties
    Dry dry
    Infill infill
    Adaptive adaptive
    Mirostat mirostat
    Random random
    Random *xtc              # one for each xtc in the chain, then their saved copies
    int32_t n_xtc

    int32_t leaves_open      # equal logits may be left open until one is drawn (row_top_k())
    int32_t keeps_candidates  # sampler_candidates() may be called after the next token
    int32_t has_maxima       # the scratch memory has the maxima of the next row (logits_row.pxd)

    # The last token; the pointers lead into its scratch memory.
    int32_t sampled_from
    Candidates candidates
    Row row

cdef Sampler *sampler_open(const llamad_table *table, const void *vocab, int32_t n_vocab,
                           const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                           const int32_t *breakers, int32_t n_breakers) noexcept nogil
cdef Sampler *sampler_open_chain(const llamad_table *table, const void *vocab, int32_t n_vocab,
                                 const llamad_sampling *sampling, const llamad_bias *bias, int32_t n_bias,
                                 const char *breakers, int32_t n_breakers) noexcept nogil
cdef int32_t sampler_history_wanted(const llamad_sampling *sampling) noexcept nogil
cdef void sampler_accept(Sampler *sampler, int32_t token) noexcept nogil
cdef void sampler_mark(const Sampler *sampler, SamplerMark *mark) noexcept nogil
cdef int sampler_return_to(Sampler *sampler, const SamplerMark *mark, int64_t n_tokens) noexcept nogil
cdef int32_t sampler_sample(Sampler *sampler, float *logits, void *scratch) noexcept nogil
cdef void sampler_candidates(Sampler *sampler, llamad_candidate **data, int32_t *n) noexcept nogil
cdef void sampler_close(Sampler *sampler) noexcept nogil
cdef size_t sampler_scratch_bytes(int32_t n_vocab) noexcept nogil
