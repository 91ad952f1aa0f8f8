# The Mersenne twister of C++, because llama.cpp's draws are the reference.
from libc.stdint cimport int32_t, uint32_t

ctypedef struct Random:
    uint32_t state[624]
    int32_t at
    uint32_t n_drawn         # numbers since the seed

cdef void random_seed(Random *random, uint32_t seed) noexcept nogil
cdef void random_skip(Random *random, uint32_t n) noexcept nogil
cdef uint32_t random_next(Random *random) noexcept nogil
cdef double random_double(Random *random) noexcept nogil
cdef float random_float(Random *random) noexcept nogil
