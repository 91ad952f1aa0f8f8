# How often the tokens of a draft model are right. Unlike those of text, its drafts cost time, so it is judged only by
# those that were verified.
from libc.stdint cimport int32_t

ctypedef struct Acceptance:
    double n_right           # recent tokens that were right
    double n_judged          # recent tokens that were judged: those, and the first wrong one of each draft

cdef int32_t acceptance_judged(int32_t n_right, int32_t n_drafted) noexcept nogil
cdef void acceptance_add(Acceptance *acceptance, int32_t n_right, int32_t n_drafted) noexcept nogil
cdef void acceptance_age(Acceptance *acceptance, double decay, int32_t n_tokens) noexcept nogil
cdef double acceptance_share(const Acceptance *acceptance, double prior, double expected) noexcept nogil
cdef double acceptance_tokens(double share, int32_t width) noexcept nogil
