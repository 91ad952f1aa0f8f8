# The blobs for compiled code, which finds their memory by number.
from libc.stdint cimport uint8_t, uint64_t

cdef extern from "llamad/protocol/blobs.h" nogil:
    ctypedef struct llamad_blob:
        uint64_t id
        uint8_t *data
        size_t capacity
        size_t size

cdef class Arena:
    cdef readonly int fd

cdef class Blob:
    cdef llamad_blob *blob
    cdef readonly Arena arena

cdef llamad_blob *blob_find(uint64_t id) noexcept nogil
cdef llamad_blob *blob_use(uint64_t id) noexcept nogil
cdef void blob_leave(llamad_blob *blob) noexcept nogil
cdef uint8_t *pages_open(size_t n) noexcept nogil
cdef void pages_close(uint8_t *pages, size_t n) noexcept nogil
