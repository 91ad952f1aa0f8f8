# What computing a prompt's tokens costs, by their position.
from libc.stdint cimport int32_t

cdef enum:
    DEPTHS = 10

ctypedef struct TokenCosts:
    double us[DEPTHS]        # of a token before position 2,048, before 4,096, before 8,192, ...; 0: unknown

cdef void costs_learn(TokenCosts *costs, double position, double us) noexcept nogil
cdef double costs_us(const TokenCosts *costs, int32_t begin, int32_t end) noexcept nogil
