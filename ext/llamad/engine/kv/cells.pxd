# Counts how many cells of the caches the slots take.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot, Slots

cdef int32_t cells_used(const Slots *slots) noexcept nogil
cdef int32_t cells_busy(const Slots *slots) noexcept nogil
cdef int32_t cells_wanted(const Slots *slots) noexcept nogil
cdef int32_t cells_spare(const Slots *slots) noexcept nogil
cdef int cells_fit(const Slots *slots, int32_t n) noexcept nogil
cdef int cells_fit_running(const Slots *slots, int32_t n_more, int32_t n_prompt) noexcept nogil
cdef int32_t cells_computed(const Slots *slots, int32_t n_tokens) noexcept nogil
