# The fields of requests and responses for the compiled half of the HTTP layer.

cdef class Head:
    cdef readonly str method
    cdef readonly str path
    cdef readonly bytes raw_query
    cdef readonly dict headers
    cdef readonly long long length
    cdef readonly tuple malformed
    cdef readonly tuple refused
    cdef readonly bint http10
    cdef readonly bint keep_alive
    cdef readonly bint expects
    cdef readonly str offered_id
    cdef readonly bytes cors_lines
    cdef readonly str shown
    cdef dict _query  # None until it is needed

    cdef dict parsed_query(self)

cdef class Request:
    cdef public str method
    cdef public str path
    cdef dict _query  # None until it is needed
    cdef public dict headers
    cdef public object buffer
    cdef public object body
    cdef public str request_id
    cdef public str peer
    cdef public double t_start
    cdef public object route
    cdef public dict params
    cdef public str key_name
    cdef Head head

cdef class Response:
    cdef public int status
    cdef public object body
    cdef public str content_type
    cdef public tuple headers
    cdef public str reason

cdef class RequestIds:
    cdef unsigned long long _n
    cdef bytes _prefix

    cpdef str make(self)
    cdef str take_or_make_id(self, str offered)
