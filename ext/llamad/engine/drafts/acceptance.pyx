# Owns nothing: computes with counts of right and wrong drafts. Runs on the engine thread.
#
# What was learned ages with every token, so a draft model that was of no use is tried again after a while.
from libc.stdint cimport int32_t

from llamad.engine.costs.drafts cimport ACCEPTANCE_DECAY, ACCEPTANCE_PRIOR


cdef void acceptance_add(Acceptance *acceptance, int32_t n_right, int32_t n_drafted) noexcept nogil:
    """Note that of a draft of n_drafted tokens the first n_right were right."""
    acceptance.n_right += n_right
    acceptance.n_judged += n_right + (n_right < n_drafted)


cdef void acceptance_age(Acceptance *acceptance, int32_t n_tokens) noexcept nogil:
    cdef double factor = ACCEPTANCE_DECAY ** n_tokens
    acceptance.n_right *= factor
    acceptance.n_judged *= factor


cdef double acceptance_share(const Acceptance *acceptance, double expected) noexcept nogil:
    """Return the share of tokens that are right; the fewer were judged, the closer it is to what is expected."""
    return (acceptance.n_right + ACCEPTANCE_PRIOR * expected) / (acceptance.n_judged + ACCEPTANCE_PRIOR)


cdef double acceptance_tokens(double share, int32_t width) noexcept nogil:
    """Return how many tokens a step of this width gives if this share of the drafted tokens is right."""
    cdef double sum = 1, power = 1
    cdef int32_t _
    for _ in range(1, width):
        power *= share
        sum += power
    return sum
