# Owns: mt19937 and the two uniform draws that libstdc++ makes from it. One Random belongs to one sampler.
from libc.stdint cimport int32_t, uint32_t

cdef enum:
    N = 624
    M = 397


cdef void random_seed(Random *random, uint32_t seed) noexcept nogil:
    cdef int32_t i
    cdef uint32_t last = seed
    random.state[0] = seed
    for i in range(1, N):
        last = <uint32_t>1812433253 * (last ^ (last >> 30)) + <uint32_t>i
        random.state[i] = last
    random.at = N
    random.n_drawn = 0


cdef void _refill(Random *random) noexcept nogil:
    cdef int32_t i
    cdef uint32_t y
    for i in range(N):
        y = (random.state[i] & <uint32_t>0x80000000) | (random.state[(i + 1) % N] & <uint32_t>0x7FFFFFFF)
        random.state[i] = random.state[(i + M) % N] ^ (y >> 1) ^ (<uint32_t>0x9908B0DF if y & 1 else <uint32_t>0)
    random.at = 0


cdef uint32_t random_next(Random *random) noexcept nogil:
    cdef uint32_t y
    if random.at >= N:
        _refill(random)
    y = random.state[random.at]
    random.at += 1
    random.n_drawn += 1
    y ^= y >> 11
    y ^= (y << 7) & <uint32_t>0x9D2C5680
    y ^= (y << 15) & <uint32_t>0xEFC60000
    return y ^ (y >> 18)


cdef void random_skip(Random *random, uint32_t n) noexcept nogil:
    """Go on as if n numbers had been drawn."""
    cdef uint32_t _
    for _ in range(n):
        random_next(random)


cdef double random_double(Random *random) noexcept nogil:
    """Return a double in [0, 1) from two draws, of which the first is the lower half."""
    cdef double low = random_next(random)
    cdef double value = (low + <double>random_next(random) * 4294967296.0) / 18446744073709551616.0
    return value if value < 1.0 else 0.99999999999999988898


cdef float random_float(Random *random) noexcept nogil:
    """Return a float in [0, 1) from one draw."""
    cdef float value = <float>random_next(random) / <float>4294967296.0
    return value if value < 1.0 else <float>0.999999940395355224609
