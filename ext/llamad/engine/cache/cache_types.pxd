# The types of the prompt cache in host memory. host_cache.pyx owns what they hold.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.base.system cimport now_us
from llamad.engine.cache.staging cimport Staging
from llamad.engine.kv.checkpoints cimport CheckpointList, Checkpoints
from llamad.engine.kv.device_copies cimport Copies
from llamad.engine.kv.trust cimport Trust
from llamad.protocol.adapter_span cimport AdapterSpan
from llamad.protocol.cache_memory cimport llamad_cache

ctypedef struct CacheEntry:
    uint64_t id
    AdapterSpan adapters
    uint64_t first_hash      # of its first tokens, to skip other entries quickly; equal ones are compared in full
    uint64_t owner
    int32_t row              # in the cache memory
    uint32_t kind            # LLAMAD_CACHE_STATE, _PART or _END
    uint32_t risked          # its row's state before llama.cpp began to read it
    int32_t n_tokens
    int32_t begin            # the entry before it has the cells of the tokens before this one (chains.pyx)
    int32_t before           # that entry's row, or -1
    int32_t n_behind         # entries that need this one,
    int32_t n_ends           # and how many of them are ends
    int32_t last_end         # scratch memory of eviction.pyx,
    int32_t is_counted       # and of cache_room.pyx
    int32_t is_held          # for a suspended task: it is not evicted
    int32_t n_readers        # slots that are getting it in parts: neither
    int32_t is_locked        # its pages are locked, for a device that reads them; -1: they cannot be locked
    CheckpointList checkpoints
    uint8_t *pages           # SES1: its head, all tokens, then the state of its cells
    const int32_t *tokens
    size_t n_state
    size_t capacity

cdef enum SpareState:
    SPARE_NONE = 0
    SPARE_WANTED = 1
    SPARE_BUSY = 2           # a thread is preparing them
    SPARE_READY = 3

cdef enum:
    SPARES_MAX = 16
    PAGE = 4096

# Pages for an entry that is made later. Another thread prepares them (spare_pages.pyx).
ctypedef struct Spare:
    int32_t state            # atomic: a SpareState
    int32_t row
    size_t n                 # how many bytes
    size_t capacity          # how many the row has, or will have
    uint64_t number          # those with smaller ones were asked for before
    uint64_t blob            # the pages have its bytes, or will have them once they are ready; 0: none
    int32_t is_left          # nobody needs the blob's bytes any more
    size_t n_copied          # how many of them; 0: they could not be copied
    int32_t is_locked        # the pages are locked, because a device will read them

cdef enum:
    ARRIVALS_MAX = 8

# The last entry of a prompt that is being inserted in parts.
ctypedef struct Arrival:
    uint64_t id              # 0: none
    int64_t t_us

ctypedef struct Cache:
    CacheEntry *entries
    int32_t *by_row          # the index of the entry with this row
    llamad_cache *memory     # outlives the engine
    Trust trust              # in what it holds from another engine
    size_t bytes_max         # including all checkpoints; 0: off
    Checkpoints *checkpoints
    Copies copies            # of entries
    const llamad_table *table
    void *ctx
    int32_t drops_idle       # prefixes that idle slots give up to make room are not saved
    int32_t spare_seq        # a sequence that no slot has; -1: none
    int32_t has_ranges       # states can be saved in parts through the spare sequence,
    int32_t has_cuts         # or cut out of whole ones
    int32_t needs_ends       # what is cut has an end, without which it cannot be used
    Staging staging          # for whole states
    uint64_t pinned          # the entry that is being restored, which must not be dropped; 0: none
    int32_t extended         # the row of an entry behind which another one is being saved; -1: none
    int32_t has_device       # a device reads and writes the states
    int32_t inserted         # the row of the last entry that was inserted, behind which another one may come; -1: none
    Arrival arrivals[ARRIVALS_MAX]
    Spare spares[SPARES_MAX]
    size_t n_spare           # the capacity of all of them
    uint64_t last_spare      # the number of the last one that was asked for
    int64_t turn_us          # time spent on states in this turn of the engine
    double save_token_us     # the learned cost of saving, per token,
    int64_t n_learned        # and from how many copies
    int64_t pages_us         # how long the last pages took to come
    double copy_byte_us      # the learned cost of a copy on the devices, per byte; 0: unknown
    double return_rate       # the share of long prompts that came back, of late

    # Only the engine thread writes these, any thread reads them.
    int64_t n_entries
    uint64_t n_bytes
    uint64_t n_saves
    uint64_t n_hits
    uint64_t n_restored      # tokens
    uint64_t n_dropped       # entries that were dropped to make room
    int64_t state_us
    int64_t state_us_max


cdef inline size_t cache_rounded(size_t n) noexcept nogil:
    """Return how much memory n bytes take."""
    return (n + PAGE - 1) // PAGE * PAGE


cdef inline size_t cache_held(const Cache *cache) noexcept nogil:
    """Return the bytes that it takes, without those of checkpoints."""
    return cache.n_bytes + cache.n_spare + cache.staging.capacity


cdef inline void cache_spent(Cache *cache, int64_t t_start) noexcept nogil:
    """Count the time since t_start as spent on states."""
    cdef int64_t us = now_us() - t_start
    cache.turn_us += us
    cache.state_us += us
    cache.state_us_max = max(cache.state_us_max, us)
