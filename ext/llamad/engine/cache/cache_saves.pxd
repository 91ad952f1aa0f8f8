# Slots that are saved to the prompt cache in host memory.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.cache.cache_types cimport Cache
from llamad.engine.kv.slots cimport Slot, Slots

cdef uint64_t cache_save_next(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil
cdef int32_t cache_unsaved(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
cdef int32_t cache_next_unsaved(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
cdef int cache_has_all(const Cache *cache, uint64_t id, const Slot *slot) noexcept nogil
cdef uint64_t cache_save(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil
cdef uint64_t cache_hold(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil
cdef void cache_release(Cache *cache, uint64_t id) noexcept nogil
