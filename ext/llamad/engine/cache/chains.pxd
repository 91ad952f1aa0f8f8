# Prompts in the prompt cache whose cells are in several entries, so that prompts with the same beginning share them.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from llamad.engine.cache.cache_types cimport Cache
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.protocol.adapter_span cimport AdapterSpan

# The part of a slot's state that is saved to an entry of its own.
ctypedef struct Segment:
    int32_t begin            # its cells are those of the positions from here
    int32_t end              # to here
    int32_t before           # the row of the entry that has the cells before them, or -1
    int32_t replaced         # the row of an entry that has some of the same cells and is not needed any more, or -1
    int32_t is_end           # it has no cells, but the end of the state

cdef int chain_can_hold(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
cdef void chain_plan(const Cache *cache, const Slot *slot, Segment *part) noexcept nogil
cdef size_t chain_head_bytes(int32_t n_tokens) noexcept nogil
cdef int chain_can_cut(const Cache *cache, const Slots *slots, const Slot *slot) noexcept nogil
cdef int chain_is_saved(const Segment *part) noexcept nogil
cdef int64_t chain_saved(const Cache *cache, const Slot *slot) noexcept nogil
cdef int64_t chain_ending(const Cache *cache, const int32_t *tokens, int32_t n, uint64_t owner,
                          const AdapterSpan *adapters) noexcept nogil
cdef size_t chain_end_bytes(const Slots *slots, const Slot *slot) noexcept nogil
cdef int64_t chain_cut(const Cache *cache, const Segment *part, uint8_t *out, size_t n_out) noexcept nogil
cdef int32_t chain_open(const Cache *cache, const Slot *slot, const Segment *part) noexcept nogil
cdef void chain_close(const Cache *cache, const Slot *slot, int32_t seq) noexcept nogil
cdef void chain_link(Cache *cache, int64_t i, int32_t before) noexcept nogil
cdef void chain_replace(Cache *cache, int32_t old, int64_t i) noexcept nogil
cdef int chain_is_joined(const Cache *cache, int64_t i) noexcept nogil
cdef int64_t chain_before(const Cache *cache, int64_t i) noexcept nogil
cdef void chain_use(Cache *cache, int64_t i) noexcept nogil
cdef int32_t chain_return(Cache *cache, int64_t i) noexcept nogil
cdef size_t chain_bytes(const Cache *cache, int64_t i) noexcept nogil
cdef int64_t chain_part(const Cache *cache, int64_t i, int32_t begin) noexcept nogil
cdef int32_t chain_boundary(const Cache *cache, int64_t i, int32_t n) noexcept nogil
cdef int64_t chain_unlocked(const Cache *cache, int64_t i) noexcept nogil
cdef void chain_lock(Cache *cache, int64_t i) noexcept nogil
cdef int chain_restore_part(Cache *cache, const Slot *slot, int64_t i) noexcept nogil
cdef int64_t chain_restore(Cache *cache, const Slot *slot, int64_t i) noexcept nogil
