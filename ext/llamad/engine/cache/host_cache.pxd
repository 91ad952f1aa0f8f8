# The prompt cache in host memory: states of slots that are idle or were given to another prompt. They are found by
# their tokens.
from libc.stdint cimport int32_t, uint8_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.engine.cache.cache_types cimport Cache
from llamad.engine.kv.checkpoints cimport Checkpoints
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.protocol.cache_memory cimport llamad_cache
from llamad.protocol.messages cimport ActionCommand

cdef int cache_init(Cache *cache, size_t bytes_max, Checkpoints *checkpoints, const llamad_table *table,
                    void *ctx, llamad_cache *memory, int has_device) noexcept nogil
cdef void cache_free(Cache *cache) noexcept nogil
cdef int cache_prepare_insert(Cache *cache, const ActionCommand *command, int is_first) noexcept nogil
cdef size_t cache_part_bytes(const Cache *cache, int32_t n_end, int32_t n_cells) noexcept nogil
cdef void cache_stock(Cache *cache, size_t n, int32_t n_entries) noexcept nogil
cdef int cache_prepare_save(Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
cdef int cache_insert(Cache *cache, const Slots *slots, const uint8_t *data,
                      const ActionCommand *command) noexcept nogil
cdef int32_t cache_drop_beginnings(Cache *cache, const Slots *slots, const Slot *slot, size_t n) noexcept nogil
cdef void cache_drop_superseded(Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
cdef void cache_copy(Cache *cache, const Slots *slots, const Slot *slot, uint64_t id) noexcept nogil
cdef double cache_copy_us(const Cache *cache, uint64_t id) noexcept nogil
cdef int cache_is_slow(const Cache *cache, uint64_t id) noexcept nogil
cdef void cache_lock(Cache *cache, uint64_t id) noexcept nogil
cdef void cache_drop(Cache *cache, uint64_t id) noexcept nogil
cdef int cache_drop_checkpoints(Cache *cache) noexcept nogil
cdef int cache_drop_least(Cache *cache) noexcept nogil
cdef int cache_restore(Cache *cache, Slots *slots, Slot *slot, uint64_t id) noexcept nogil
