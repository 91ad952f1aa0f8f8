# Checkpoints: the part of a sequence's state that cannot be truncated, after a number of its tokens. They are for kinds
# of memory that cannot go back by themselves: sliding windows, recurrent and hybrid ones.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.engine.kv.trust cimport Trust
from llamad.protocol.adapter_span cimport AdapterSpan

ctypedef struct Checkpoint:
    int32_t n_refs           # lists that contain it: a slot's, and those of prompt cache entries
    int32_t n_tokens
    uint64_t number          # larger is later
    int32_t row              # in the cache memory
    uint8_t *pages
    size_t n_state
    size_t capacity

ctypedef struct CheckpointList:
    Checkpoint **items       # ordered by their number of tokens
    int32_t n

ctypedef struct Checkpoints:
    int32_t n_max            # per slot; 0: none are made
    int32_t min_step         # tokens between two in the middle of a prompt
    size_t bytes_max         # of all checkpoints together
    const Trust *trust       # has the memory in which they lie
    int32_t leaves_rows      # those that are dropped stay there for the next engine
    double us                # the learned cost of making one
    uint64_t last_number

    # Only the engine thread writes these, any thread reads them.
    uint64_t n
    uint64_t n_bytes
    uint64_t n_made
    uint64_t n_used
    uint64_t n_dropped       # to make room
    int64_t state_us
    int64_t state_us_max

# The sequence of which a checkpoint is made, as it is now.
ctypedef struct CheckpointOf:
    int32_t seq
    const int32_t *tokens
    int32_t n_tokens
    AdapterSpan adapters
    uint64_t owner

cdef int list_init(CheckpointList *list, int32_t n_max) noexcept nogil
cdef void list_free(Checkpoints *all, CheckpointList *list) noexcept nogil
cdef void list_cut(Checkpoints *all, CheckpointList *list, int32_t n_tokens) noexcept nogil
cdef Checkpoint *list_find(const CheckpointList *list, int32_t n_tokens) noexcept nogil
cdef int32_t list_reaches(const CheckpointList *list, int32_t n_tokens) noexcept nogil
cdef void list_share(Checkpoints *all, CheckpointList *list, const CheckpointList *other) noexcept nogil
cdef void list_drop(Checkpoints *all, CheckpointList *list, int32_t i) noexcept nogil
cdef void list_thin(Checkpoints *all, CheckpointList *list) noexcept nogil
cdef void list_add(CheckpointList *list, Checkpoint *checkpoint) noexcept nogil
cdef int checkpoint_make(Checkpoints *all, CheckpointList *list, const llamad_table *table, void *ctx,
                         const CheckpointOf *of, size_t n_state) noexcept nogil
cdef Checkpoint *checkpoint_adopt(Checkpoints *all, int32_t row) noexcept nogil
cdef void checkpoint_let_go(Checkpoints *all, Checkpoint *checkpoint) noexcept nogil
cdef int checkpoint_restore(Checkpoints *all, const Checkpoint *checkpoint, const llamad_table *table, void *ctx,
                            int32_t seq, int32_t n_pos) noexcept nogil
