# Pages for entries of the prompt cache, prepared by another thread.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.cache.cache_types cimport Cache, Spare

cdef int spare_ask(Cache *cache, int32_t row, size_t n, uint64_t blob) noexcept nogil
cdef int32_t spare_take(Cache *cache, size_t n) noexcept nogil
cdef const Spare *spare_of_blob(const Cache *cache, uint64_t blob) noexcept nogil
cdef int32_t spare_take_blob(Cache *cache, uint64_t blob, size_t n, int *is_locked) noexcept nogil
cdef void spare_forget(Cache *cache, uint64_t blob) noexcept nogil
cdef int32_t spare_count(const Cache *cache, size_t n) noexcept nogil
cdef int spare_is_ready(const Cache *cache, size_t n) noexcept nogil
cdef int spare_is_awaited(const Cache *cache) noexcept nogil
cdef int spare_has_place(Cache *cache) noexcept nogil
cdef int spare_make_place(Cache *cache, size_t n) noexcept nogil
cdef size_t spare_kept_bytes(const Cache *cache) noexcept nogil
cdef int spare_drop_one(Cache *cache) noexcept nogil
cdef int spare_drop_copy(Cache *cache) noexcept nogil
cdef int spare_prepare(Cache *cache) noexcept nogil
cdef void spare_unlock_all(Cache *cache) noexcept nogil
