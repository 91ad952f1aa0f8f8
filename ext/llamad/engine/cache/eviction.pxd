# Which idle slot gives up its prefix, and which entry of the prompt cache is dropped.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.cache.cache_types cimport Cache
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.kv.task_queue cimport Task

cdef Slot *slots_choose(Slots *slots, const Task *task) noexcept nogil
cdef Slot *slots_cheaper(Slots *slots, const Slot *forked, int32_t n_keep, int32_t n_gain) noexcept nogil
cdef Slot *slots_least_valuable(Slots *slots, const Slot *spared) noexcept nogil
cdef int cache_is_kept(const Cache *cache, int64_t i) noexcept nogil
cdef int64_t cache_least_valuable(const Cache *cache) noexcept nogil
