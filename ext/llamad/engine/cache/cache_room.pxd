# Room in the prompt cache, within its limit.
from libc.stdint cimport int32_t

from llamad.engine.cache.cache_types cimport Cache

cdef int cache_is_full(const Cache *cache, size_t n) noexcept nogil
cdef int cache_make_room(Cache *cache, size_t n, int32_t *row) noexcept nogil
cdef int cache_has_staging_room(Cache *cache, size_t n, size_t n_saved) noexcept nogil
cdef int32_t cache_take_pages(Cache *cache, size_t n, int32_t row) noexcept nogil
