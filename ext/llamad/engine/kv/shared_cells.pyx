# Owns: which cells of a unified cache belong to several slots. Runs on the engine thread.
#
# A prefix that one slot takes over from another (prefix/copying.pyx) stays in the same cells, which then belong to
# both. Cells are shared from the first token on, so one number per pair of slots is enough: how many of their first
# tokens are in the same cells.
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free


cdef int shared_init(SharedCells *shared, int32_t n_slots) noexcept nogil:
    """Return 0, or -1 if memory ran out."""
    shared.n_slots = n_slots
    shared.counts = <int32_t *>calloc(<size_t>n_slots * <size_t>n_slots, sizeof(int32_t))
    return 0 if shared.counts != NULL else -1


cdef void shared_free(SharedCells *shared) noexcept nogil:
    free(shared.counts)
    shared.counts = NULL


cdef int32_t shared_with(const SharedCells *shared, int32_t slot, int32_t other) noexcept nogil:
    """Return how many of their first tokens the two slots have in the same cells."""
    return shared.counts[slot * shared.n_slots + other]


cdef void _set(SharedCells *shared, int32_t slot, int32_t other, int32_t n) noexcept nogil:
    shared.counts[slot * shared.n_slots + other] = shared.counts[other * shared.n_slots + slot] = n


cdef void shared_copy(SharedCells *shared, int32_t slot, int32_t source, int32_t n) noexcept nogil:
    """Note that the slot, which was empty, shares the cells of the source's first n tokens."""
    cdef int32_t i
    for i in range(shared.n_slots):
        if i != slot and i != source:
            _set(shared, slot, i, min(n, shared_with(shared, source, i)))
    _set(shared, slot, source, n)


cdef void shared_cut(SharedCells *shared, int32_t slot, int32_t n) noexcept nogil:
    """Note that the slot shares at most the cells of its first n tokens from now on."""
    cdef int32_t i
    for i in range(shared.n_slots):
        if shared_with(shared, slot, i) > n:
            _set(shared, slot, i, n)


cdef int32_t shared_with_any(const SharedCells *shared, int32_t slot) noexcept nogil:
    """Return how many of the slot's first tokens are in cells that another slot shares: those must not move."""
    cdef int32_t i, n = 0
    for i in range(shared.n_slots):
        n = max(n, shared_with(shared, slot, i))
    return n
