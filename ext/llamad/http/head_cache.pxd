from llamad.http.request cimport Head

cdef class Heads:
    cdef dict _known
    cdef object _cors

    cdef Head find(self, bytes piece)
    cdef Head read(self, reader, bytes piece)
    cdef bint _can_keep(self, reader, bytes piece, Head head) except -1

cdef Py_ssize_t skip_blank(bytes data, Py_ssize_t pos) noexcept
cdef bytes whole_head(bytes data, Py_ssize_t pos)
