# The slot table: one sequence of the KV cache each, the prefix it holds and the task it serves.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.sampler cimport Sampler
from llamad.engine.table cimport llamad_table
from llamad.engine.tasks cimport Task
from llamad.engine.text cimport Text

cdef enum SlotState:
    SLOT_IDLE = 0
    SLOT_READING = 1
    SLOT_WRITING = 2

ctypedef struct Slot:
    int32_t id
    int32_t state
    Task *task
    Sampler *sampler
    Text text

    # What the slot's sequence holds; outlives the task.
    int32_t *tokens
    int32_t n_tokens
    uint64_t adapter_set
    int64_t t_used_us

    # Of the running task.
    int32_t n_cached
    int32_t n_decoded
    int32_t next_token       # picked, not yet decoded; valid while writing
    int32_t n_planned        # tokens in this step's batch
    int32_t i_output         # index in this step's batch whose logits are wanted, -1: none
    float *logits
    int32_t picked           # by the sampler thread; negative is an error code
    int32_t truncated
    int32_t has_new_line
    int64_t t_admit_us
    int64_t t_prompt_us
    int64_t t_first_us

ctypedef struct Slots:
    Slot *items
    int32_t n
    int32_t n_ctx            # of one slot
    int32_t n_cells          # of the whole cache, where slots share it; 0: each slot has its own
    int32_t n_swa
    float similarity_min
    uint64_t n_evicted       # cached tokens dropped for another prompt
    uint64_t n_reused
    const llamad_table *table
    void *ctx

cdef int slots_init(Slots *slots, const llamad_table *table, void *ctx, int32_t n, int32_t n_ctx) noexcept nogil
cdef void slots_free(Slots *slots) noexcept nogil
cdef Slot *slots_choose(Slots *slots, const Task *task) noexcept nogil
cdef void slot_take(Slots *slots, Slot *slot, Task *task) noexcept nogil
cdef void slot_release(Slots *slots, Slot *slot) noexcept nogil
cdef void slots_forget(Slots *slots) noexcept nogil
cdef int slot_can_shift(Slots *slots, const Slot *slot) noexcept nogil
cdef void slot_shift(Slots *slots, Slot *slot, int32_t n_keep) noexcept nogil
cdef int32_t slots_cells_used(const Slots *slots) noexcept nogil
cdef int32_t slots_evict_idle(Slots *slots) noexcept nogil
cdef int32_t slots_check_integrity(const Slots *slots) noexcept nogil
