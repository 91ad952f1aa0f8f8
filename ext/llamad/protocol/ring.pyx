# Owns: the records' layout inside a ring. reserve/commit are the producer's, peek/release the consumer's.
#
# The consumer trusts nothing that it reads: a producer that crashes may have written anything, and one that was taken
# over may write while the consumer reads. So each length and kind is read once, and what cannot be a record breaks the
# ring for good.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from llamad.base.system cimport load_acquire, load_word, store_release

cdef enum:
    HEAD_BYTES = 8
    KIND_PADDING = 0


cdef void ring_attach(Ring *ring, Cursors *shared, uint8_t *data, uint64_t capacity) noexcept nogil:
    """Set up one side's view of a new, empty ring."""
    memset(ring, 0, sizeof(Ring))
    ring.shared = shared
    ring.data = data
    ring.capacity = capacity


cdef uint64_t ring_record_max(const Ring *ring) noexcept nogil:
    """Return the largest payload that always fits into an empty ring, wherever its head is."""
    return ring.capacity // 2 - HEAD_BYTES


cdef void *ring_reserve(Ring *ring, uint32_t kind, uint64_t n_payload) noexcept nogil:
    """Return room for one record, or NULL if the ring is too full. Nothing is visible before ring_commit()."""
    cdef uint64_t need = (n_payload + HEAD_BYTES + 7) & ~<uint64_t>7
    cdef uint64_t at = ring.own & (ring.capacity - 1)
    cdef uint64_t till_end = ring.capacity - at
    cdef uint64_t skip = till_end if need > till_end else 0
    cdef uint64_t n_used = ring.own - load_acquire(&ring.shared.tail)
    cdef RecordHead *record
    if n_used > ring.capacity or need + skip > ring.capacity - n_used:
        return NULL
    if skip:
        record = <RecordHead *>(ring.data + at)
        record.n_bytes = <uint32_t>skip
        record.kind = KIND_PADDING
        at = 0
    record = <RecordHead *>(ring.data + at)
    record.n_bytes = <uint32_t>need
    record.kind = kind
    ring.pending = ring.own + skip + need
    return <void *>(ring.data + at + HEAD_BYTES)


cdef void ring_commit(Ring *ring) noexcept nogil:
    ring.own = ring.pending
    store_release(&ring.shared.head, ring.own)


cdef int ring_is_empty(const Ring *ring) noexcept nogil:
    """Return whether the consumer has read everything. For the consumer."""
    return ring.own == load_acquire(&ring.shared.head)


cdef int ring_is_taken(const Ring *ring) noexcept nogil:
    """Return whether the consumer has read everything. For the producer."""
    return ring.own == load_acquire(&ring.shared.tail)


cdef void *ring_peek(Ring *ring, uint32_t *kind, uint64_t *n_payload) noexcept nogil:
    """Return the oldest record's payload and its size, or NULL. It is valid until ring_release(), but a hostile producer
    can still change it: a consumer that does not trust the producer copies it before it looks inside."""
    cdef RecordHead *record
    cdef uint32_t record_kind
    cdef uint64_t at, n_bytes, n_there = load_acquire(&ring.shared.head) - ring.own
    while n_there:
        at = ring.own & (ring.capacity - 1)
        record = <RecordHead *>(ring.data + at)
        n_bytes = load_word(&record.n_bytes)
        record_kind = load_word(&record.kind)
        if (n_there > ring.capacity or n_bytes > n_there or n_bytes > ring.capacity - at
                or n_bytes < HEAD_BYTES or n_bytes & 7):
            ring.is_broken = 1
            return NULL
        if record_kind != KIND_PADDING:
            kind[0] = record_kind
            n_payload[0] = n_bytes - HEAD_BYTES
            ring.peeked = n_bytes
            return <void *>(<uint8_t *>record + HEAD_BYTES)
        ring.own += n_bytes
        n_there -= n_bytes
        store_release(&ring.shared.tail, ring.own)
    return NULL


cdef void ring_release(Ring *ring) noexcept nogil:
    """Free the record that ring_peek() returned."""
    ring.own += ring.peeked
    store_release(&ring.shared.tail, ring.own)
