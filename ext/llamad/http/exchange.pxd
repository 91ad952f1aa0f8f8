# The fields of an exchange, and the interface of the connection that it uses.
from llamad.base.memory_budget cimport Claim
from llamad.http.flow_control cimport Flow
from llamad.http.request cimport Request

cdef class Way:
    cdef readonly object server
    cdef readonly Flow flow

    cdef put(self, bytes data)
    cdef put_two(self, bytes first, second)
    cdef put_piece(self, data)
    cdef bint can_keep(self, Exchange exchange) except -1
    cdef Claim new_claim(self, Exchange exchange)
    cdef finish(self, Exchange exchange)
    cdef cut_off(self, Exchange exchange)

cdef class Exchange:
    cdef readonly Request request
    cdef readonly int status
    cdef readonly long long sent_bytes
    cdef readonly bint closed
    cdef public object on_abort
    cdef public object on_pause
    cdef public object on_resume
    cdef public str failure  # why the response is an error, or ended with one; for the log
    cdef public object details  # returns the application's (name, value) pairs for the access log; floats are seconds
    cdef readonly bint http10
    cdef bint keep
    cdef readonly Way _connection
    cdef Claim _claim  # None until something is counted
    cdef long long n_body  # bytes of the body that are counted
    cdef readonly long long n_decoded  # bytes that are counted for the decoded body
    cdef bint _begun
    cdef bint _chunked
    cdef bint _mute
    cdef long long _length  # of a streamed response; -1: not known
    cdef object _rest  # the part of a large body that is not yet written

    cdef Claim take_claim(self)
    cpdef count_decoded(self, long long n_bytes)
    cpdef send(self, response)
    cpdef write(self, bytes data)
    cpdef end(self, bytes data=*)
    cpdef fail(self, response)
    cdef bytes _framed(self, bytes data)
    cdef abandon(self)
    cdef pause(self)
    cdef resume(self)
    cdef bytes _head(self, int status, str content_type, headers, bytes framing)
    cdef _refuse_head(self, error)
    cdef _close(self)

cdef Exchange new_exchange(Way connection, Request request, bint http10, bint keep)
