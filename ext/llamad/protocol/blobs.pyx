# distutils: sources = ext/llamad/protocol/blob_table.c
# Owns: memory outside Python's heap that engines and workers fill without the GIL. A blob lives as long as its Python
# object; an engine knows it by number (blobs.h), and whoever sends that number keeps the object meanwhile.
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport uint8_t, uint64_t
from posix.unistd cimport close

cdef extern from "llamad/protocol/blobs.h" nogil:
    llamad_blob *llamad_blob_open(size_t capacity, int arena)
    void llamad_blob_close(llamad_blob *blob)
    llamad_blob *llamad_blob_find(uint64_t id)
    llamad_blob *llamad_blob_use(uint64_t id)
    void llamad_blob_leave(llamad_blob *blob)
    void llamad_blob_touch(llamad_blob *blob)
    int llamad_arena_open()
    int llamad_blob_borrow(int arena, uint64_t id, size_t capacity)
    void llamad_blob_give_back(uint64_t id)
    uint8_t *llamad_pages_open(size_t n)
    void llamad_pages_close(uint8_t *pages, size_t n)


cdef llamad_blob *blob_find(uint64_t id) noexcept nogil:
    return llamad_blob_find(id)


cdef llamad_blob *blob_use(uint64_t id) noexcept nogil:
    return llamad_blob_use(id)


cdef void blob_leave(llamad_blob *blob) noexcept nogil:
    llamad_blob_leave(blob)


cdef uint8_t *pages_open(size_t n) noexcept nogil:
    return llamad_pages_open(n)


cdef void pages_close(uint8_t *pages, size_t n) noexcept nogil:
    llamad_pages_close(pages, n)


def borrow(arena: int, id: int, capacity: int) -> bool:
    """Map a blob of the front's arena in the engine, with all of its pages. Return False if there is no memory."""
    cdef int fd = arena, code
    cdef uint64_t number = id
    cdef size_t n = capacity
    with nogil:
        code = llamad_blob_borrow(fd, number, n)
    return code == 0


def give_back(id: int) -> None:
    cdef uint64_t number = id
    with nogil:
        llamad_blob_give_back(number)


def borrowed(id: int) -> memoryview:
    """Return the bytes of a blob that this engine has borrowed. They must not be used after give_back()."""
    cdef llamad_blob *blob = llamad_blob_find(id)
    if blob == NULL:
        raise ValueError(f"blob {id} was not lent")
    return memoryview(<uint8_t[:blob.capacity]> blob.data)


cdef class Arena:
    """The file with the front's blobs for the engines of one model. Raises OSError."""

    def __cinit__(self) -> None:
        self.fd = llamad_arena_open()
        if self.fd < 0:
            raise OSError("no shared memory: memfd_create failed; raise `ulimit -n` or free some memory")

    def __dealloc__(self) -> None:
        if self.fd >= 0:
            close(self.fd)


cdef class Blob:
    """A writable buffer of its first `size` bytes. Engines can map it if it lies in their arena; without an arena it is
    memory of this process alone."""

    def __cinit__(self, capacity: int, arena: Arena | None = None) -> None:
        cdef size_t n = capacity
        self.arena = arena
        self.blob = llamad_blob_open(n, -1 if arena is None else (<Arena>arena).fd)
        if self.blob == NULL:
            raise MemoryError(f"no memory for a state of {capacity} bytes")

    def __dealloc__(self) -> None:
        if self.blob != NULL:
            with nogil:
                llamad_blob_close(self.blob)

    @property
    def id(self) -> int:
        return self.blob.id

    @property
    def capacity(self) -> int:
        return self.blob.capacity

    @property
    def size(self) -> int:
        return self.blob.size

    @size.setter
    def size(self, size: int) -> None:
        if not 0 <= size <= self.blob.capacity:
            raise ValueError("a blob's size is at most its capacity")
        self.blob.size = size

    def __len__(self) -> int:
        return self.blob.size

    def touch(self) -> None:
        """Allocate all pages now, so that writing to the blob does not wait for them. Its content is lost."""
        with nogil:
            llamad_blob_touch(self.blob)

    def __getbuffer__(self, Py_buffer *buffer, int flags) -> None:
        PyBuffer_FillInfo(buffer, self, self.blob.data, <Py_ssize_t>self.blob.size, 0, flags)

    def __releasebuffer__(self, Py_buffer *buffer) -> None:
        pass
