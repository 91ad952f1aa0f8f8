# The adapter sets that computed a sequence. Equal adapters and scales have the same set number; 0: no adapters.
#
# An activated adapter (aLoRA) begins in the middle: what comes before its invocation is computed as if it were not there,
# and serves those who do not use it.
from libc.stdint cimport int32_t, uint64_t

ctypedef struct AdapterSpan:
    uint64_t base            # the set of the first n_base tokens,
    uint64_t set             # and of all others
    int32_t n_base


cdef inline uint64_t span_at(const AdapterSpan *span, int32_t i) noexcept nogil:
    """Return the set that computes token i."""
    return span.base if i < span.n_base else span.set


cdef inline int32_t span_common(const AdapterSpan *a, const AdapterSpan *b, int32_t n) noexcept nogil:
    """Return how many of the first n tokens both spans compute with the same adapters, counted from the beginning."""
    cdef int32_t first = min(a.n_base, b.n_base), last = max(a.n_base, b.n_base)
    if span_at(a, 0) != span_at(b, 0):
        return 0
    if first < last and span_at(a, first) != span_at(b, first):
        return min(n, first)
    return n if span_at(a, last) == span_at(b, last) else min(n, last)
