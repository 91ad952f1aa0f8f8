# exp of a whole row, with the C library's bits.
from libc.stdint cimport int32_t

cdef void exps(const float *row, int32_t n, float largest, float *out) noexcept nogil
cdef float sum_in_order(const float *p, int32_t n) noexcept nogil
