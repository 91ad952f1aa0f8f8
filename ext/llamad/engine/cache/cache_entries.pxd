# The entries of the prompt cache: found by their numbers, added and dropped.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from llamad.engine.cache.cache_types cimport Cache, CacheEntry
from llamad.protocol.adapter_span cimport AdapterSpan

cdef int64_t entries_index(const Cache *cache, uint64_t id) noexcept nogil
cdef const CacheEntry *entries_get(const Cache *cache, uint64_t id) noexcept nogil
cdef void entries_describe(Cache *cache, int32_t row, uint32_t kind, int32_t n_tokens, size_t n_bytes,
                           const AdapterSpan *adapters, uint64_t owner, uint64_t session,
                           int32_t retention_s) noexcept nogil
cdef CacheEntry *entries_add(Cache *cache, int32_t row) noexcept nogil
cdef void entries_drop_rest(Cache *cache, int32_t row) noexcept nogil
cdef int32_t entries_remove(Cache *cache, int64_t i) noexcept nogil
cdef void entries_drop(Cache *cache, int64_t i) noexcept nogil
cdef void entries_drop_chain(Cache *cache, int64_t i) noexcept nogil
