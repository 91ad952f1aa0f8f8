# Pages for the next entry of the prompt cache, prepared by another thread.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.cache.cache_types cimport Cache

cdef void spare_drop(Cache *cache) noexcept nogil
cdef int32_t spare_take(Cache *cache, size_t n) noexcept nogil
cdef int spare_is_coming(Cache *cache, size_t n) noexcept nogil
cdef void spare_ask(Cache *cache, int32_t row, size_t n) noexcept nogil
cdef int spare_ask_for_blob(Cache *cache, uint64_t blob, size_t n) noexcept nogil
cdef int spare_has(const Cache *cache, uint64_t blob, size_t n) noexcept nogil
cdef void spare_prepare(Cache *cache) noexcept nogil
