cdef class Share:
    cdef readonly object client
    cdef readonly long long n_bytes
    cdef long long n_claims

cdef class Budget:
    cdef readonly long long bytes_max
    cdef readonly long long n_bytes
    cdef readonly long long n_peak
    cdef readonly long long n_refused
    cdef long long _n_leaving
    cdef dict _shares
    cdef set _claims

    cpdef Claim claim(self, client)
    cdef _drop(self, Claim claim)
    cdef bint _has_room(self, Claim claim) noexcept
    cdef _make_room(self, Claim asking)

cdef class Claim:
    cdef readonly Budget budget
    cdef readonly Share share
    cdef readonly long long n_bytes
    cdef int _n_holders
    cdef bint _is_leaving
    cdef long long _n_shared
    cdef list _used
    cdef public object give_way
    cdef public bint is_incomplete

    cpdef add(self, long long n_bytes)
    cpdef release(self)
    cdef bint _may_give_way_to(self, Claim asking) noexcept
    cdef void _change(self, long long n_bytes) noexcept

cdef class Shared:
    cdef readonly long long n_bytes
    cdef dict _claims
