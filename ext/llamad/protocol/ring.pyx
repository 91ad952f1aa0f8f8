# Owns: the records' layout inside a ring. reserve/commit run on the producer's thread, peek/release on the
# consumer's. Memory is mapped once and touched only as far as it is used.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from llamad.base.system cimport load_acquire, store_release

cdef enum:
    HEAD_BYTES = 8
    KIND_PADDING = 0


cdef int ring_init(Ring *ring, uint64_t capacity_min) noexcept nogil:
    """0, or -1 when memory cannot be mapped."""
    cdef uint64_t capacity = 4096
    memset(ring, 0, sizeof(Ring))
    while capacity < capacity_min:
        capacity *= 2
    cdef void *data = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if data == MAP_FAILED:
        return -1
    ring.data = <uint8_t *>data
    ring.capacity = capacity
    return 0


cdef void ring_free(Ring *ring) noexcept nogil:
    if ring.data != NULL:
        munmap(ring.data, ring.capacity)
    ring.data = NULL


cdef uint64_t ring_record_max(const Ring *ring) noexcept nogil:
    """The largest payload that is sure to fit an empty ring, wherever its head stands."""
    return ring.capacity // 2 - HEAD_BYTES


cdef void *ring_reserve(Ring *ring, uint32_t kind, uint64_t n_payload) noexcept nogil:
    """Room for one record, or NULL when the ring is too full. Nothing is visible before ring_commit()."""
    cdef uint64_t need = (n_payload + HEAD_BYTES + 7) & ~<uint64_t>7
    cdef uint64_t at = ring.head & (ring.capacity - 1)
    cdef uint64_t till_end = ring.capacity - at
    cdef uint64_t skip = till_end if need > till_end else 0
    cdef RecordHead *record
    if need + skip > ring.capacity - (ring.head - load_acquire(&ring.tail)):
        return NULL
    if skip:
        record = <RecordHead *>(ring.data + at)
        record.n_bytes = <uint32_t>skip
        record.kind = KIND_PADDING
        at = 0
    record = <RecordHead *>(ring.data + at)
    record.n_bytes = <uint32_t>need
    record.kind = kind
    ring.pending = ring.head + skip + need
    return <void *>(ring.data + at + HEAD_BYTES)


cdef void ring_commit(Ring *ring) noexcept nogil:
    store_release(&ring.head, ring.pending)


cdef int ring_is_empty(const Ring *ring) noexcept nogil:
    """As the consumer sees it."""
    return ring.tail == load_acquire(&ring.head)


cdef void *ring_peek(Ring *ring, uint32_t *kind) noexcept nogil:
    """The oldest record's payload, or NULL. It stays valid until ring_release()."""
    cdef RecordHead *record
    while ring.tail != load_acquire(&ring.head):
        record = <RecordHead *>(ring.data + (ring.tail & (ring.capacity - 1)))
        if record.kind != KIND_PADDING:
            kind[0] = record.kind
            return <void *>(<uint8_t *>record + HEAD_BYTES)
        store_release(&ring.tail, ring.tail + record.n_bytes)
    return NULL


cdef void ring_release(Ring *ring) noexcept nogil:
    cdef RecordHead *record = <RecordHead *>(ring.data + (ring.tail & (ring.capacity - 1)))
    store_release(&ring.tail, ring.tail + record.n_bytes)
