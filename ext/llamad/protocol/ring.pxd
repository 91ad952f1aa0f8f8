# A lock-free ring of variable-length records between exactly one producer and one consumer.
# Records hold no pointers, and each side has a Ring of its own over the same memory, so the two may be processes.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

ctypedef struct RecordHead:
    uint32_t n_bytes   # size of the whole record, a multiple of 8
    uint32_t kind      # 0 is padding at the ring's end

# The positions of both sides, in shared memory. Each has a cache line of its own.
ctypedef struct Cursors:
    uint64_t head      # only the producer writes it
    uint64_t head_line[7]
    uint64_t tail      # only the consumer writes it
    uint64_t tail_line[7]

ctypedef struct Ring:
    uint8_t *data
    uint64_t capacity  # a power of two
    Cursors *shared
    uint64_t own       # this side's cursor; not read from shared memory, which the other side could overwrite
    uint64_t pending   # producer: its cursor after the reserved record is committed
    uint64_t peeked    # consumer: the size of the record that it reads
    int is_broken      # consumer: the producer wrote an invalid record

cdef void ring_attach(Ring *ring, Cursors *shared, uint8_t *data, uint64_t capacity) noexcept nogil
cdef uint64_t ring_record_max(const Ring *ring) noexcept nogil
cdef void *ring_reserve(Ring *ring, uint32_t kind, uint64_t n_payload) noexcept nogil
cdef void ring_commit(Ring *ring) noexcept nogil
cdef int ring_is_empty(const Ring *ring) noexcept nogil
cdef int ring_is_taken(const Ring *ring) noexcept nogil
cdef void *ring_peek(Ring *ring, uint32_t *kind, uint64_t *n_payload) noexcept nogil
cdef void ring_release(Ring *ring) noexcept nogil
