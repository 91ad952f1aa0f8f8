# The prompt cache in host memory: states of slots that were given to another prompt. They are found by their tokens.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.protocol.adapter_span cimport AdapterSpan
from llamad.engine.kv.checkpoints cimport CheckpointList, Checkpoints
from llamad.engine.kv.device_copies cimport Copies
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.kv.task_queue cimport Task

ctypedef struct CacheEntry:
    uint64_t id
    AdapterSpan adapters
    uint64_t first_hash      # of its first tokens, to skip other entries quickly; equal ones are compared in full
    uint64_t used            # larger is later
    uint64_t owner
    int32_t n_tokens
    int32_t is_held          # for a suspended task: it is not evicted
    int32_t is_locked        # its pages are locked, for a device that reads them; -1: they cannot be locked
    CheckpointList checkpoints
    uint8_t *pages           # the tokens, then the state
    size_t n_state
    size_t capacity

ctypedef struct Cache:
    CacheEntry *entries
    size_t bytes_max         # including all checkpoints; 0: off
    Checkpoints *checkpoints
    Copies copies            # of entries
    const llamad_table *table
    void *ctx
    int32_t drops_idle       # prefixes that idle slots give up to make room are not saved
    uint64_t last_id
    uint64_t pinned          # the entry that is being restored, which must not be dropped; 0: none
    uint64_t last_used
    int64_t turn_us          # time spent on states in this turn of the engine
    double save_token_us     # the learned cost of saving, per token

    # Only the engine thread writes these, any thread reads them.
    int64_t n_entries
    uint64_t n_bytes
    uint64_t n_saves
    uint64_t n_hits
    uint64_t n_restored      # tokens
    uint64_t n_dropped       # entries that were dropped to make room
    int64_t state_us
    int64_t state_us_max

cdef int cache_init(Cache *cache, size_t bytes_max, Checkpoints *checkpoints, const llamad_table *table,
                    void *ctx) noexcept nogil
cdef void cache_free(Cache *cache) noexcept nogil
cdef int32_t cache_find(const Cache *cache, const Slots *slots, const Task *task, uint64_t *id) noexcept nogil
cdef int32_t cache_common(const Cache *cache, const Task *task) noexcept nogil
cdef int32_t cache_holds(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
cdef uint64_t cache_save(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil
cdef uint64_t cache_hold(Cache *cache, Slots *slots, const Slot *slot) noexcept nogil
cdef void cache_copy(Cache *cache, const Slots *slots, const Slot *slot, uint64_t id) noexcept nogil
cdef int cache_is_slow(const Cache *cache, uint64_t id) noexcept nogil
cdef void cache_lock(Cache *cache, uint64_t id) noexcept nogil
cdef void cache_release(Cache *cache, uint64_t id) noexcept nogil
cdef void cache_drop(Cache *cache, uint64_t id) noexcept nogil
cdef int cache_drop_checkpoints(Cache *cache) noexcept nogil
cdef int cache_drop_oldest(Cache *cache) noexcept nogil
cdef const CacheEntry *cache_entry(const Cache *cache, uint64_t id) noexcept nogil
cdef int cache_restore(Cache *cache, Slots *slots, Slot *slot, uint64_t id) noexcept nogil
