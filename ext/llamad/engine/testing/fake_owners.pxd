# The sequences that own a cell of the fake: a set of small numbers. Only inline functions.
from libc.stdint cimport int32_t, uint64_t
from libc.string cimport memset

cdef enum:
    FAKE_SEQS_MAX = 256

ctypedef struct FakeOwners:
    uint64_t bits[4]           # one for each of FAKE_SEQS_MAX
    int32_t n


cdef inline int owners_has(const FakeOwners *owners, int32_t seq) noexcept nogil:
    return (owners.bits[seq >> 6] >> (seq & 63)) & 1


cdef inline void owners_add(FakeOwners *owners, int32_t seq) noexcept nogil:
    if not owners_has(owners, seq):
        owners.bits[seq >> 6] |= <uint64_t>1 << (seq & 63)
        owners.n += 1


cdef inline void owners_remove(FakeOwners *owners, int32_t seq) noexcept nogil:
    if owners_has(owners, seq):
        owners.bits[seq >> 6] &= ~(<uint64_t>1 << (seq & 63))
        owners.n -= 1


cdef inline void owners_clear(FakeOwners *owners) noexcept nogil:
    memset(owners, 0, sizeof(FakeOwners))


cdef inline int32_t owners_first(const FakeOwners *owners) noexcept nogil:
    """Return the lowest owner, or -1 if there is none."""
    cdef int32_t seq
    if owners.n:
        for seq in range(FAKE_SEQS_MAX):
            if owners_has(owners, seq):
                return seq
    return -1
