# A lock-free ring of variable-length records between exactly one producer and one consumer thread.
# Records hold no pointers, so the two ends may one day live in two processes.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

ctypedef struct RecordHead:
    uint32_t n_bytes   # of the whole record, a multiple of 8
    uint32_t kind      # 0 is padding at the ring's end

ctypedef struct Ring:
    uint8_t *data
    uint64_t capacity  # a power of two
    uint64_t head      # written by the producer alone
    uint64_t tail      # written by the consumer alone
    uint64_t pending   # producer's own: the head once the reserved record is committed

cdef int ring_init(Ring *ring, uint64_t capacity_min) noexcept nogil
cdef void ring_free(Ring *ring) noexcept nogil
cdef uint64_t ring_record_max(const Ring *ring) noexcept nogil
cdef void *ring_reserve(Ring *ring, uint32_t kind, uint64_t n_payload) noexcept nogil
cdef void ring_commit(Ring *ring) noexcept nogil
cdef int ring_is_empty(const Ring *ring) noexcept nogil
cdef void *ring_peek(Ring *ring, uint32_t *kind) noexcept nogil
cdef void ring_release(Ring *ring) noexcept nogil
