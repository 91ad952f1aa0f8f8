# Owns: the form of expf that this machine can use. It is chosen and checked at import, and read-only afterwards.
from libc.stdint cimport int32_t

cdef extern from "llamad/engine/sampler/exact_exp.h" nogil:
    ctypedef void (*exps_fn)(const float *row, int32_t n, float largest, float *out) noexcept nogil
    exps_fn exps_open() noexcept
    void exps_plain(const float *row, int32_t n, float largest, float *out) noexcept

cdef extern from "llamad/engine/sampler/exact_sum.h" nogil:
    float sums_in_order(const float *p, int32_t n) noexcept
    float sums_squares(const float *row, int32_t n, float mean) noexcept

cdef exps_fn _chosen = exps_open()


cdef void exps(const float *row, int32_t n, float largest, float *out) noexcept nogil:
    """Set out[i] = expf(row[i] - largest); no element may be larger than that."""
    _chosen(row, n, largest, out)


cdef float sum_in_order(const float *p, int32_t n) noexcept nogil:
    """Return exactly what adding the floats one after the other gives; none may be negative."""
    return sums_in_order(p, n)


cdef float sum_of_squares(const float *row, int32_t n, float mean) noexcept nogil:
    """Return exactly what adding (row[i] - mean)^2 one after the other to a float gives, without elements of -inf."""
    return sums_squares(row, n, mean)


def has_vectors() -> bool:
    """Return whether a vector form is in use."""
    return _chosen != exps_plain
