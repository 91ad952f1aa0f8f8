# The bytes of a response head.
cdef bint has_body(int status)
cdef bytes length_line(Py_ssize_t length)
cpdef bytes response_head(int status, str content_type, bytes lines, headers, str request_id, bint http10, bint keep)
