# Owns nothing: computes with counts of right and wrong drafts. Runs on the engine thread.
from libc.stdint cimport int32_t


cdef int32_t acceptance_judged(int32_t n_right, int32_t n_drafted) noexcept nogil:
    """Return how many tokens of a draft were judged: those that were right, and the first wrong one."""
    return n_right + (n_right < n_drafted)


cdef void acceptance_add(Acceptance *acceptance, int32_t n_right, int32_t n_drafted) noexcept nogil:
    """Note that of a draft of n_drafted tokens the first n_right were right."""
    acceptance.n_right += n_right
    acceptance.n_judged += acceptance_judged(n_right, n_drafted)


cdef void acceptance_age(Acceptance *acceptance, double decay, int32_t n_tokens) noexcept nogil:
    """Forget a part of what was judged, with each of n_tokens."""
    cdef double factor = decay ** n_tokens
    acceptance.n_right *= factor
    acceptance.n_judged *= factor


cdef double acceptance_share(const Acceptance *acceptance, double prior, double expected) noexcept nogil:
    """Return the share of tokens that are right. What is expected counts for `prior` tokens that were judged."""
    return (acceptance.n_right + prior * expected) / (acceptance.n_judged + prior)


cdef double acceptance_tokens(double share, int32_t width) noexcept nogil:
    """Return how many tokens a step of this width gives if this share of the drafted tokens is right."""
    cdef double sum = 1, power = 1
    cdef int32_t _
    for _ in range(1, width):
        power *= share
        sum += power
    return sum
