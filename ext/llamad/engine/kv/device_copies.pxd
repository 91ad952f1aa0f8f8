# Copies of slots' states on the devices. A state in host memory returns over the bus, a copy within its device.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.engine.kv.slots cimport Slots

ctypedef struct Copy:
    uint64_t entry           # the prompt cache entry whose state it is; 0: none
    uint8_t *data            # what describes it to llama.cpp
    size_t n
    int64_t n_bytes          # bytes that it takes on the devices, or a little less

ctypedef struct Copies:
    Copy *items              # one for each sequence; NULL: off
    int32_t n
    uint8_t *smallest        # the state of one token
    size_t n_smallest
    int64_t margin           # bytes that stay free on each device
    const llamad_table *table
    void *ctx

    # Only the engine thread writes these, any thread reads them.
    int64_t n_bytes
    uint64_t n_hits

cdef int copies_init(Copies *copies, const llamad_table *table, void *ctx, int32_t n, const uint8_t *smallest,
                     size_t n_smallest, int64_t margin) noexcept nogil
cdef void copies_free(Copies *copies) noexcept nogil
cdef int copies_has(const Copies *copies, uint64_t entry) noexcept nogil
cdef void copies_make(Copies *copies, const Slots *slots, int32_t seq, uint64_t entry, size_t n_state) noexcept nogil
cdef int copies_restore(Copies *copies, int32_t seq, uint64_t entry) noexcept nogil
cdef void copies_forget(Copies *copies) noexcept nogil
