# Tracks which cells of a unified cache belong to several slots.
from libc.stdint cimport int32_t

ctypedef struct SharedCells:
    int32_t n_slots
    int32_t *counts          # for each pair of slots

cdef int shared_init(SharedCells *shared, int32_t n_slots) noexcept nogil
cdef void shared_free(SharedCells *shared) noexcept nogil
cdef void shared_copy(SharedCells *shared, int32_t slot, int32_t source, int32_t n) noexcept nogil
cdef void shared_cut(SharedCells *shared, int32_t slot, int32_t n) noexcept nogil
cdef int32_t shared_with(const SharedCells *shared, int32_t slot, int32_t other) noexcept nogil
cdef int32_t shared_with_any(const SharedCells *shared, int32_t slot) noexcept nogil
