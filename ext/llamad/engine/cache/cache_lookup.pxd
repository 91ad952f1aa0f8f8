# Finds entries of the prompt cache by their tokens.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.cache.cache_types cimport Cache, CacheEntry
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.kv.task_queue cimport Task
from llamad.protocol.adapter_span cimport AdapterSpan

cdef uint64_t cache_hash(const int32_t *tokens) noexcept nogil
cdef int32_t cache_shares(const Cache *cache, const CacheEntry *entry, uint64_t hash, const AdapterSpan *adapters,
                          uint64_t owner, const int32_t *tokens, int32_t n) noexcept nogil
cdef int32_t cache_find(const Cache *cache, const Slots *slots, const Task *task, uint64_t *id) noexcept nogil
cdef int32_t cache_common(const Cache *cache, const Task *task) noexcept nogil
cdef int32_t cache_holds(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
