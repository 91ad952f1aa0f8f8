# Mirostat: cuts the list where tokens become too surprising, and moves the cut towards a target of surprise.
from libc.stdint cimport int32_t

from llamad.base.function_table cimport llamad_sampling
from llamad.engine.sampler.candidates cimport Candidates
from llamad.engine.sampler.random cimport Random

ctypedef struct Mirostat:
    int32_t version          # 0: off
    float limit              # the largest surprise of the next token, in bits; the paper calls it mu

cdef void mirostat_open(Mirostat *mirostat, const llamad_sampling *s) noexcept nogil
cdef int32_t mirostat_draw(Mirostat *mirostat, const llamad_sampling *s, int32_t n_vocab, Candidates *c,
                           Random *random) noexcept nogil
