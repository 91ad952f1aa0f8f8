cdef class Flow:
    cdef object _transport
    cdef readonly bint read_paused
    cdef public bint write_paused
    # Bytes given to the transport. `settled` equals it once a sweep has seen the buffer empty, so that an idle
    # connection costs a sweep only one comparison.
    cdef readonly long long written
    cdef readonly long long settled
    # How many bytes the client had taken when that number last changed, and the time of the change.
    cdef long long _passed
    cdef double _since
