# The slot table: one sequence of the KV cache each, the prefix it holds and the task it serves.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.base.function_table cimport llamad_table
from llamad.base.thread_pool cimport Job
from llamad.protocol.adapter_span cimport AdapterSpan
from llamad.engine.kv.checkpoints cimport CheckpointList, Checkpoints
from llamad.engine.kv.shared_cells cimport SharedCells
from llamad.engine.sampler.logprobs cimport Probs
from llamad.engine.sampler.sampler cimport Sampler
from llamad.engine.kv.task_queue cimport Task
from llamad.grammar.grammar cimport llamad_matcher
from llamad.protocol.messages cimport TASK_PROMPT_PROBS
from llamad.tokenizer.detokenizer cimport Text

cdef enum SlotState:
    SLOT_IDLE = 0
    SLOT_PREFILLING = 1
    SLOT_DECODING = 2
    SLOT_SUSPENDED = 3       # its task waits, and its sequence is empty (suspension.pyx)

# Where sampling that a grammar makes long is (threads/grammar_pool.pyx).
cdef enum Deferral:
    DEFERRAL_NONE = 0
    DEFERRAL_WANTED = 1       # the sampler thread did not get to the end
    DEFERRAL_QUEUED = 2
    DEFERRAL_RUNNING = 3      # the slot's sampler, matcher, row, probabilities and token are the grammar thread's
    DEFERRAL_DONE = 4         # the engine takes the token in its next turn

cdef enum:
    STOPS_MAX = 3

ctypedef struct Slot:
    int32_t id
    int32_t state
    Task *task
    Sampler *sampler
    llamad_matcher *matcher  # NULL: no grammar
    Text text
    Probs probs

    # What the slot's sequence holds; outlives the task.
    int32_t *tokens
    int32_t n_tokens
    int32_t n_pos            # the next token's position: n_tokens, unless positions were grouped or rows take fewer
    int32_t n_partial        # of its last tokens: rows of a run that is not whole yet
    int32_t n_grouped        # positions below it are grouped (self-extend)
    AdapterSpan adapters     # that computed it
    uint64_t group           # of the task that filled it
    uint64_t owner           # likewise; 0: everybody's
    uint64_t session         # likewise; 0: none
    uint64_t pending_turn    # when llama.cpp was last asked to write to it at its next decode (slots.pending_turn)
    int64_t t_used_us
    int32_t n_processed      # prompt tokens that its last task had to prefill
    CheckpointList checkpoints  # of its first tokens
    uint64_t host_entry      # of the prompt cache, with all that it holds or has parked; 0: none (prefix/parking.pyx)
    int32_t n_parked         # first of `tokens` that are there and not in the sequence, which is empty then
    int32_t is_unsaved       # there was no room for it
    int32_t is_awaited       # by an action that was put off to the next turn: no task may have it before

    # Of the running task.
    int32_t n_cached
    const int32_t *prefill   # what is prefilled: the prompt; or the slot's own tokens, which are computed again
    int32_t n_prefill
    int32_t n_begun          # tokens it held when that began
    int32_t n_shown          # prompt tokens whose probabilities were sent
    int32_t stops[STOPS_MAX]  # prefill halts after this many tokens, for a checkpoint; ascending, 0: none
    int32_t n_looked         # tokens it had when a checkpoint was last considered
    int32_t n_decoded
    int32_t next_token       # sampled, not yet decoded; valid while decoding
    int64_t t_turn_us        # when its adapters last had their turn,
    int32_t sits_out         # and whether others have it in this step (adapter_turns.pyx)
    int32_t i_client         # whose prompt it is, and whether it had its turn in this step (prefill_order.pyx)
    int32_t is_ordered
    int32_t n_planned        # tokens in this step's batch
    int32_t is_filler        # in this step's batch only to join its neighbours
    int32_t n_chunk          # tokens of its prompt in the decode that prefills,
    int32_t n_padding        # and of padding after them (padding.pyx)
    int32_t n_left           # scratch of padding.pyx
    int32_t i_output         # index in this step's batch whose logits are wanted, -1: none
    int32_t i_row            # the number of that output among the batch's
    float *logits
    int32_t sampled          # the token, by a sampler thread; negative: a Sampled or the sampler's code
    int32_t sample_stage     # how far sampling under a grammar has come (slot_sample.pyx)
    int32_t deferral         # a Deferral
    Job deferred             # in the grammar threads' queue
    float *row               # the slot's own copy of the logits while deferred; outlives the task
    int64_t t_deferred_us
    int32_t truncated
    int64_t answer_bytes     # of its task so far, about
    int32_t has_new_line
    int32_t is_announced     # the event loop knows that the task was admitted
    int64_t t_admit_us
    int64_t t_prompt_us
    int64_t t_first_us

    # While it is suspended; 0 otherwise.
    int32_t n_held           # tokens that its sequence held
    int32_t held_state       # what it was doing
    uint64_t held_entry      # of the prompt cache, with its state; 0: none

ctypedef struct Slots:
    Slot *items
    int32_t n
    int32_t n_ctx            # of one slot
    int32_t n_cells          # of the whole cache, where slots share it; 0: each slot has its own
    int32_t n_swa
    int32_t n_swa_spare      # tokens that a sliding window's memory keeps beyond it: a compute batch
    int32_t n_window         # cells of the window's cache, where slots share it; 0: there is none, or each has its own
    SharedCells shared
    int32_t can_share        # a prefix of one sequence can be given to another
    int32_t can_fill         # a token may be decoded and removed again: padding and fillers
    int32_t takes_rows       # prompts may hold rows of embeddings
    int32_t group_n          # self-extend: this many neighbours get one position; 1: off
    int32_t group_w          # in windows of this many positions
    float similarity_min
    int32_t n_suspended
    int32_t is_pending       # llama.cpp has copies or moves left to do at its next decode
    uint64_t pending_turn    # counts the times that this began
    uint64_t n_evicted       # cached tokens dropped for another prompt
    uint64_t n_reused
    uint64_t n_copied        # of those, taken over from another slot,
    uint64_t n_moved         # and moved to another position
    Checkpoints checkpoints
    const llamad_table *table
    void *ctx

cdef int slots_init(Slots *slots, const llamad_table *table, void *ctx, int32_t n, int32_t n_ctx) noexcept nogil
cdef int slots_init_checkpoints(Slots *slots, int32_t n_max, int32_t min_step, size_t bytes_max) noexcept nogil
cdef void slots_free(Slots *slots) noexcept nogil
cdef Slot *slots_choose(Slots *slots, const Task *task) noexcept nogil
cdef int32_t common_prefix(const int32_t *a, const int32_t *b, int32_t n) noexcept nogil
cdef int slot_is_pending(const Slots *slots, const Slot *slot) noexcept nogil
cdef void slot_set_pending(Slots *slots, Slot *slot) noexcept nogil
cdef int may_use(const Slot *slot, uint64_t owner) noexcept nogil
cdef int32_t slot_common(const Slot *slot, const Task *task) noexcept nogil
cdef int32_t slot_pos(const Slots *slots, const Slot *slot, int32_t n) noexcept nogil
cdef void slot_drop_partial(Slots *slots, Slot *slot) noexcept nogil
cdef int slot_has_rows(const Slots *slots, const Slot *slot) noexcept nogil
cdef int32_t slot_can_cut(Slots *slots, const Slot *slot, int32_t n) noexcept nogil
cdef int32_t slot_can_keep(Slots *slots, const Slot *slot, int32_t n) noexcept nogil
cdef int32_t slot_keep(Slots *slots, Slot *slot, int32_t n) noexcept nogil
cdef void slot_clear(Slots *slots, Slot *slot) noexcept nogil
cdef void slot_take(Slots *slots, Slot *slot, Task *task) noexcept nogil
cdef void slot_release(Slots *slots, Slot *slot) noexcept nogil
cdef void slots_forget(Slots *slots) noexcept nogil
cdef int32_t slot_discard(Slots *slots, const Slot *slot, int32_t n_keep) noexcept nogil
cdef int slot_shift(Slots *slots, Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil
cdef void slot_regroup(Slots *slots, Slot *slot) noexcept nogil
cdef int32_t slot_until(const Slot *slot) noexcept nogil
cdef int32_t slot_room(const Slots *slots, const Slot *slot) noexcept nogil
cdef int slot_has_window(Slots *slots, const Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil
cdef int32_t slot_can_drop(Slots *slots, const Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil
cdef Slot *slots_oldest_idle(Slots *slots, const Slot *spared) noexcept nogil
cdef int32_t slots_check_integrity(const Slots *slots) noexcept nogil


cdef inline int slot_is_recomputing(const Slot *slot) noexcept nogil:
    """Whether it prefills what its task had before it was suspended, the beginning of its answer included."""
    return slot.state == SLOT_PREFILLING and slot.sampler != NULL


cdef inline int slot_shows_prompt(const Slot *slot) noexcept nogil:
    """Whether it prefills a prompt whose probabilities are wanted, so that every token needs its logits."""
    return slot.state == SLOT_PREFILLING and slot.sampler == NULL and slot.task.command.flags & TASK_PROMPT_PROBS != 0


cdef inline void slot_advance(Slot *slot, int32_t n) noexcept nogil:
    """The slot's sequence holds n more tokens: the next of its prompt, or the one that it decodes."""
    cdef int32_t i
    if slot.state == SLOT_DECODING:
        slot.tokens[slot.n_tokens] = slot.next_token
    else:
        for i in range(slot.n_tokens, slot.n_tokens + n):
            slot.tokens[i] = slot.prefill[i]
    slot.n_tokens += n
    slot.n_pos += n
