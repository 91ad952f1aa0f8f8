# The phases of a connection, and its fields beside those for reading requests.
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from llamad.http.exchange cimport Exchange, Way

# A request runs IDLE -> HEAD -> BODY -> ANSWER -> IDLE and skips phases that it does not need. Only connection.pyx and
# lifetime.pyx change a phase. The order matters: up to HEAD a new request may begin, from ENDING on none will.
cpdef enum Phase:
    IDLE = 0    # between requests
    HEAD = 1    # a head has begun and is not complete
    BODY = 2    # the head was accepted, the body is coming
    ANSWER = 3  # the application has the request; bytes that arrive now wait in the stash
    SKIP = 4    # the response was sent without the body, which is read and dropped to reach the next request
    ENDING = 5  # the last response was sent while _consume() runs, which will check whether bytes are left
    LINGER = 6  # the last response was sent; arriving bytes are dropped until the client closes
    CLOSED = 7


cdef inline double monotonic() noexcept:
    """Return time.monotonic()."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <double>t.tv_sec + <double>t.tv_nsec * 1e-9


cdef class Lifetime(Way):
    # connection lifetime
    cdef readonly object _transport
    cdef str _peer
    cdef str _address           # "" until it is needed
    cdef object _proxied        # a Proxied (proxies.py), if the other end is a trusted proxy
    cdef readonly object _head  # a HeadReader while a head arrives in pieces
    cdef readonly bytes _stash  # bytes that could not be handled yet, from _stash_pos on
    cdef Py_ssize_t _stash_pos
    cdef readonly int phase
    cdef readonly double deadline
    cdef double _phase_end      # the deadline of the whole head or body that is arriving
    cdef readonly double since  # when the phase or its request began
    # request lifetime
    cdef readonly Exchange exchange
    cdef object _body           # a LengthBody or ChunkedBody while a body arrives in pieces

    cdef _begin(self, server)
    cdef _refuse(self, error)
    cdef _close(self)
    cdef _linger(self)
    cdef _drop_input(self)
    cdef _drop_head(self)
    cdef bint _abandon(self) except -1
    cdef _on_deadline(self)
    cdef str _why_late(self)
    cdef str _why_silent(self)
    cdef str _name_peer(self)
