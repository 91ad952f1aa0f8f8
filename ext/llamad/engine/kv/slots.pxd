# The slot table: each slot has one sequence of the KV cache, the prefix that it holds, and the task that it serves.
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
from llamad.protocol.messages cimport TASK_PROMPT_PROBS, SamplerMark
from llamad.tokenizer.detokenizer cimport Text
from llamad.tokenizer.loop_guard cimport LoopGuard

cdef enum SlotState:
    SLOT_IDLE = 0
    SLOT_PREFILLING = 1
    SLOT_DECODING = 2
    SLOT_SUSPENDED = 3       # the task waits, and the sequence is empty (suspension.pyx)

# The progress of sampling that takes long because of a grammar (threads/grammar_pool.pyx).
cdef enum Deferral:
    DEFERRAL_NONE = 0
    DEFERRAL_WANTED = 1       # the sampler thread did not finish
    DEFERRAL_QUEUED = 2
    DEFERRAL_RUNNING = 3      # a grammar thread owns the slot's sampler, matcher, row, probabilities and token
    DEFERRAL_DONE = 4         # the engine takes the token in its next turn

cdef enum:
    STOPS_MAX = 3
    DRAFT_MAX = 63           # tokens that can be verified in one step, behind the one that was sampled

ctypedef struct Slot:
    int32_t id
    int32_t state
    Task *task
    Sampler *sampler
    llamad_matcher *matcher  # NULL: no grammar
    Text text
    Probs probs
    LoopGuard loop_guard     # of its task's output, if the task has one

    # What the slot's sequence holds; this outlives the task.
    int32_t *tokens
    int32_t n_tokens
    int32_t n_pos            # the next token's position: n_tokens, unless positions are grouped or rows take fewer
    int32_t n_partial        # how many of the last tokens are rows of a run that is not complete yet
    int32_t n_grouped        # positions below this are grouped (self-extend)
    int32_t is_rolled_back   # llama.cpp will take tokens back at its next decode: a copy would still have them
    AdapterSpan adapters     # the adapters that computed it
    uint64_t group           # the group of the task that filled it
    uint64_t owner           # the owner of that task; 0: everybody may use it
    uint64_t session         # the session of that task; 0: none
    int32_t retention_s      # what its client says about the prompt
    int32_t n_returns        # how often the conversation that it holds went on
    uint64_t pending_turn    # slots.pending_turn when a write was last left for llama.cpp's next decode
    int64_t t_used_us
    int32_t n_processed      # prompt tokens that its last task had to prefill
    CheckpointList checkpoints  # of its first tokens
    uint64_t host_entry      # prompt cache entry with all that it holds or has parked; 0: none (prefix/parking.pyx)
    int32_t n_parked         # how many of `tokens` are parked in that entry; the sequence is empty then
    int32_t is_unsaved       # the prompt cache had no room for it
    int32_t was_saved        # the prompt cache has had all that it holds (prefix/parking.pyx)
    int32_t is_awaited       # an action that was put off waits for it: no task may take it before

    # While it gets its prompt's beginning from the prompt cache, in parts (prefix/restoring.pyx); 0 otherwise.
    uint64_t restored_entry
    int32_t n_restored       # how many tokens it gets from this entry

    # The running task.
    int32_t n_cached
    const int32_t *prefill   # the tokens to prefill: the prompt, or the slot's own tokens, which are computed again
    int32_t n_prefill
    int32_t n_begun          # tokens that it held when prefill began
    int32_t n_shown          # prompt tokens whose probabilities were sent
    int32_t stops[STOPS_MAX]  # prefill stops after these numbers of tokens, for a checkpoint; ascending, 0: none
    int32_t n_looked         # n_tokens when a checkpoint was last considered
    int32_t n_decoded
    int32_t next_token       # sampled, not yet decoded; valid while decoding
    int64_t t_turn_us        # when its adapters last had their turn
    int32_t sits_out         # it has no tokens in this step (adapter_turns.pyx, decode_faults.pyx)
    int32_t i_client         # its client's entry in the order of prefill (prefill_order.pyx)
    int32_t is_ordered       # it had its turn to prefill in this step
    int32_t n_planned        # tokens in this step's batch
    int32_t is_filler        # it is in this step's batch only to join its neighbours
    int32_t n_chunk          # tokens of its prompt in the prefill decode
    int32_t n_padding        # padding tokens after them (padding.pyx)
    int32_t n_left           # scratch memory of padding.pyx
    int32_t i_output         # index in this step's batch of the token whose logits are needed, -1: none
    int32_t i_row            # the number of that output among the batch's outputs
    float *logits
    int32_t sampled          # the token from a sampler thread; negative: a Sampled or the sampler's code
    int32_t samples[DRAFT_MAX + 1]  # the tokens of this step; more than one if the draft was right
    int32_t n_samples
    SamplerMark *marks       # the sampler after each of them; DRAFT_MAX + 1, outside of this struct to keep it small
    SamplerMark *mark        # the sampler after the last token that was taken
    int32_t draft[DRAFT_MAX]  # a guess at the tokens after next_token (draft_step.pyx)
    int32_t n_guessed        # how many of them a drafter gave; those after them only fill up the batch
    int32_t n_draft          # how many of those are verified in this step
    int32_t finds_forced     # its task drafts what its grammar forces (drafts/forced_text.pyx)
    int32_t found[DRAFT_MAX]  # what must follow `sampled`, from the thread that sampled it
    int32_t n_found
    int32_t forced[DRAFT_MAX]  # what must follow next_token
    int32_t n_forced
    int32_t n_drafted        # guessed tokens that were verified for its task
    int32_t n_accepted       # those of them that were right
    int32_t sample_stage     # how far sampling under a grammar has come (slot_sample.pyx)
    int32_t deferral         # a Deferral
    Job deferred             # its job in the grammar threads' queue
    float *row               # the slot's own copy of the logits while deferred; outlives the task
    int64_t t_deferred_us
    int32_t truncated
    int32_t n_kept           # the first tokens of its context that shifts have kept, and
    int32_t n_discarded      # the tokens behind them that they have discarded
    int64_t answer_bytes     # approximate size of the task's response so far
    int32_t has_new_line
    int32_t is_announced     # the event loop knows that the task was admitted
    int64_t t_admit_us
    int64_t t_prompt_us
    int64_t t_first_us
    int64_t t_sent_us        # when text was last sent

    # While it is suspended; 0 otherwise.
    int32_t n_held           # how many tokens its sequence held
    int32_t held_state       # its state before
    uint64_t held_entry      # the prompt cache entry with its state; 0: none

ctypedef struct Slots:
    Slot *items
    int32_t n
    int32_t n_ctx            # per slot
    int32_t n_cells          # of the whole cache, if slots share it; 0: each slot has its own stream
    int32_t n_swa
    int32_t n_swa_spare      # tokens that the memory keeps beyond the sliding window: a ubatch
    int32_t n_window         # cells of the window's cache, if slots share it; 0: no window, or each has its own
    SharedCells shared
    int32_t can_share        # a prefix of one sequence can be copied to another
    int32_t can_fill         # a token may be decoded and removed again: padding and fillers
    int32_t takes_rows       # prompts may hold rows of embeddings
    int32_t group_n          # self-extend: this many adjacent tokens get one position; 1: off
    int32_t group_w          # in windows of this many positions
    float similarity_min
    int32_t n_suspended
    int32_t is_pending       # llama.cpp has copies or moves left to do at its next decode
    uint64_t pending_turn    # counts how often is_pending was set
    uint64_t n_evicted       # cached tokens dropped for another prompt
    uint64_t n_reused
    uint64_t n_copied        # those of them that were copied from another slot
    uint64_t n_moved         # those that were moved to another position
    Checkpoints checkpoints
    const llamad_table *table
    void *ctx

cdef int slots_init(Slots *slots, const llamad_table *table, void *ctx, int32_t n, int32_t n_ctx) noexcept nogil
cdef int slots_init_checkpoints(Slots *slots, int32_t n_max, int32_t min_step, size_t bytes_max) noexcept nogil
cdef void slots_free(Slots *slots) noexcept nogil
cdef int32_t slot_common_held(const Slot *slot, const Task *task, int32_t n_held) noexcept nogil
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
cdef int slots_others_run(const Slots *slots, const Slot *slot) noexcept nogil
cdef void slots_forget(Slots *slots) noexcept nogil
cdef int32_t slot_discard(Slots *slots, const Slot *slot, int32_t n_keep) noexcept nogil
cdef int slot_shift(Slots *slots, Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil
cdef void slot_regroup(Slots *slots, Slot *slot) noexcept nogil
cdef int32_t slot_until(const Slot *slot) noexcept nogil
cdef int32_t slot_room(const Slots *slots, const Slot *slot) noexcept nogil
cdef int slot_has_window(Slots *slots, const Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil
cdef int32_t slot_can_drop(Slots *slots, const Slot *slot, int32_t n_keep, int32_t n_discard) noexcept nogil
cdef int32_t slots_check_integrity(const Slots *slots) noexcept nogil


cdef inline int slot_is_recomputing(const Slot *slot) noexcept nogil:
    """Return whether it prefills what its task had before it was suspended, including its output so far. Nothing is
    sampled at the end of that, because its next token was sampled before."""
    return slot.state == SLOT_PREFILLING and slot.sampler != NULL


cdef inline int slot_is_replayed(const Slot *slot) noexcept nogil:
    """Return whether it prefills for a task that an earlier engine began: nothing is sampled at the prompt's end, because
    the token behind it was drawn before."""
    return slot.state == SLOT_PREFILLING and slot.sampler == NULL and slot.task.command.resume.n_drawn > 0


cdef inline int slot_shows_prompt(const Slot *slot) noexcept nogil:
    """Return whether it prefills a prompt whose probabilities are requested, so that every token needs its logits."""
    return slot.state == SLOT_PREFILLING and slot.sampler == NULL and slot.task.command.flags & TASK_PROMPT_PROBS != 0


cdef inline void slot_advance(Slot *slot, int32_t n) noexcept nogil:
    """Note that the sequence holds n more tokens: the next of its prompt, or the one that it decodes."""
    cdef int32_t i
    if slot.state == SLOT_DECODING:
        slot.tokens[slot.n_tokens] = slot.next_token
    else:
        for i in range(slot.n_tokens, slot.n_tokens + n):
            slot.tokens[i] = slot.prefill[i]
    slot.n_tokens += n
    slot.n_pos += n
    slot.is_rolled_back = 0
