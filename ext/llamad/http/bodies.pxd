cdef class Bodies:
    cdef readonly long long bytes_max
    cdef readonly long long n_bytes
    cdef public long long n_refused

    cdef bint is_over(self) noexcept
