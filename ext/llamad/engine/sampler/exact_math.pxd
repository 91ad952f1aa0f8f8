# exp of a whole row, with the C library's bits, and sums over a row, with the bits of adding in order.
from libc.stdint cimport int32_t

cdef void exps(const float *row, int32_t n, float largest, float *out) noexcept nogil
cdef float sum_in_order(const float *p, int32_t n) noexcept nogil
cdef float sum_of_squares(const float *row, int32_t n, float mean) noexcept nogil
