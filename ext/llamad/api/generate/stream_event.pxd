# The only writer of server-sent events.
cdef class TextFrame:
    cdef bytes before
    cdef bytes after
    cdef bint has_tokens

    cdef bytes make(self, const unsigned char *data, Py_ssize_t n, list tokens)
    cpdef bytes of_bytes(self, bytes data, list tokens)
