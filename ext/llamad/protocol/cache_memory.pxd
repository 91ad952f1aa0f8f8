# The declarations of cache_memory.h, and the class that owns a mapping of such a memory.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef extern from "llamad/protocol/cache_memory.h" nogil:
    enum:
        LLAMAD_CACHE_ROWS
        LLAMAD_CACHE_FINGERPRINT
        LLAMAD_CACHE_FREE
        LLAMAD_CACHE_OWN
        LLAMAD_CACHE_WRITTEN
        LLAMAD_CACHE_READY
        LLAMAD_CACHE_LEAVING
        LLAMAD_CACHE_STATE
        LLAMAD_CACHE_CHECKPOINT
        LLAMAD_CACHE_PART
        LLAMAD_CACHE_END
        LLAMAD_CACHE_TRUSTED
        LLAMAD_CACHE_UNCHECKED
        LLAMAD_CACHE_CHECKING
        LLAMAD_CACHE_BAD

    ctypedef struct llamad_cache_row:
        uint32_t state
        int32_t n_readers
        uint32_t kind
        int32_t n_tokens
        uint64_t id
        uint64_t at
        uint64_t span
        uint64_t capacity
        uint64_t n_bytes
        uint64_t owner
        uint64_t adapters_base
        uint64_t adapters_set
        int32_t n_base
        int32_t n_engine_readers
        uint64_t session
        uint64_t used
        uint64_t checksum
        uint64_t before
        int32_t retention_s
        int32_t n_returns

    ctypedef struct llamad_cache_head:
        uint8_t fingerprint[32]

    ctypedef struct llamad_cache_place:
        uint8_t *data
        int32_t trust
        int32_t begin

    ctypedef struct llamad_cache:
        int fd
        llamad_cache_head *head
        llamad_cache_row *rows
        llamad_cache_place *places
        int32_t n_leaving
        int32_t news
        int32_t is_tended
        int32_t n_bad

# The functions of cache_memory.h with the same names.
cdef int memory_open(llamad_cache *cache, int fd) noexcept nogil
cdef void memory_close(llamad_cache *cache) noexcept nogil
cdef uint64_t memory_checksum(const uint8_t *data, size_t n) noexcept nogil
cdef uint64_t memory_prefix(uint64_t hash, int32_t token) noexcept nogil
cdef int32_t memory_adopt(llamad_cache *cache, const uint8_t *fingerprint) noexcept nogil
cdef int32_t memory_take(llamad_cache *cache, size_t n, int32_t old) noexcept nogil
cdef int32_t memory_reserve(llamad_cache *cache, size_t n, int32_t old) noexcept nogil
cdef void memory_renew(llamad_cache *cache, int32_t row) noexcept nogil
cdef int memory_populate(llamad_cache *cache, int32_t row, size_t n) noexcept nogil
cdef void memory_publish(llamad_cache *cache, int32_t row) noexcept nogil
cdef void memory_drop(llamad_cache *cache, int32_t row) noexcept nogil
cdef void memory_sweep(llamad_cache *cache) noexcept nogil
cdef void memory_use(llamad_cache *cache, int32_t row) noexcept nogil
cdef uint32_t memory_risk(llamad_cache *cache, int32_t row) noexcept nogil
cdef void memory_survive(llamad_cache *cache, int32_t row, uint32_t state) noexcept nogil
cdef int memory_sign(llamad_cache *cache) noexcept nogil

cdef class CacheMemory:
    """The descriptor of a cache memory, and this process's mapping of its table."""

    cdef readonly int fd
    cdef llamad_cache cache
    cdef dict _pins
