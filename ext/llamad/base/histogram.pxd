# A histogram of Prometheus.

cdef enum:
    BOUNDS_MAX = 32

cdef class Histogram:
    cdef readonly str name
    cdef readonly str help
    cdef int _n_bounds
    cdef double[BOUNDS_MAX] _bounds
    cdef long long[BOUNDS_MAX + 1] _counts
    cdef double _total

    cpdef observe(self, double value, long long n=*)
