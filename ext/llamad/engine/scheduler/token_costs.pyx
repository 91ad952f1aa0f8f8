# Owns: what computing a prompt's tokens costs, by their position. A token attends to all tokens before it, so at the end of
# a long prompt it costs many times what it costs at the beginning. Used by the engine thread.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.costs.scheduler cimport RISE_RATE

cdef enum:
    FIRST_END = 2048         # the costs of earlier positions differ little


cdef void costs_learn(TokenCosts *costs, double position, double us) noexcept nogil:
    """Learn that a token cost so much, in a step whose tokens had this position on average. A lower cost is learned at
    once, a higher one slowly."""
    cdef int32_t i = 0
    while i < DEPTHS - 1 and position >= <double>(<int64_t>FIRST_END << i):
        i += 1
    if costs.us[i] == 0 or us < costs.us[i]:
        costs.us[i] = us
    else:
        costs.us[i] += RISE_RATE * (us - costs.us[i])


cdef double costs_us(const TokenCosts *costs, int32_t begin, int32_t end) noexcept nogil:
    """Return the time for the tokens from position `begin` up to `end`; 0 if it is unknown. Where nothing was learned, a
    token costs what an earlier one costs, or else a later one."""
    cdef double us = 0, known = 0
    cdef int64_t first = 0, last
    cdef int32_t i
    for i in range(DEPTHS - 1, -1, -1):
        known = costs.us[i] if costs.us[i] > 0 else known
    for i in range(DEPTHS):
        known = costs.us[i] if costs.us[i] > 0 else known
        last = end if i == DEPTHS - 1 else min(<int64_t>end, <int64_t>FIRST_END << i)
        first = max(first, <int64_t>begin)
        if last > first:
            us += <double>(last - first) * known
            first = last
    return us
