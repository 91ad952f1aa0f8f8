# The samplers that learn from what they draw. llama.cpp's adaptive-p draws tokens near a target probability, and moves the
# target if earlier tokens missed it. Mirostat cuts the list where tokens become too surprising, and moves the cut towards
# a target of surprise.
from libc.stdint cimport int32_t

from llamad.base.function_table cimport llamad_sampling
from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.random cimport Random

ctypedef struct Adaptive:
    int32_t is_on
    float decay
    float weighted           # weighted sum of the tokens' probabilities; older tokens weigh less
    float weight             # sum of the weights
    int32_t drawn            # the token that waits to be accepted; -1: none
    float drawn_p            # its probability before the logits were changed

ctypedef struct Mirostat:
    int32_t version          # 0: off
    float limit              # the largest surprise of the next token, in bits; the paper calls it mu

cdef void adaptive_open(Adaptive *adaptive, const llamad_sampling *s) noexcept nogil
cdef void adaptive_accept(Adaptive *adaptive, int32_t token) noexcept nogil
cdef int32_t adaptive_draw(Adaptive *adaptive, const llamad_sampling *s, Candidates *c, Random *random) noexcept nogil
cdef void mirostat_open(Mirostat *mirostat, const llamad_sampling *s) noexcept nogil
cdef int32_t mirostat_draw(Mirostat *mirostat, const llamad_sampling *s, int32_t n_vocab, Candidates *c,
                           Random *random) noexcept nogil
