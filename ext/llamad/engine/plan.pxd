# What goes into a step's batch: a token for every writing slot, then prompt chunks up to the budget.
from libc.stdint cimport int8_t, int32_t, int64_t

from llamad.engine.slots cimport Slots
from llamad.engine.table cimport llamad_batch

cdef enum:
    # Prompt tokens of one step that may give their logits: a row of the vocabulary each, for which llama.cpp keeps
    # the room ever after. More than n_batch of them would abort it.
    PROMPT_OUTPUTS_MAX = 64

ctypedef struct Plan:
    llamad_batch batch
    int32_t batch_max        # llama.cpp's n_batch: more aborts it
    int32_t ubatch           # llama.cpp's n_ubatch: what it computes at once
    int32_t *seq_ids         # one for each token of the batch
    int8_t *is_writer        # likewise: the token a slot picked, not its prompt
    int32_t tokens_max       # fixed budget, 0: adaptive
    int32_t has_device       # another processor computes: steps have a cost of their own, tokens cost little
    int32_t can_mix          # continuous batching: prompts are read while others write

    # Learned from past steps.
    double write_us          # a step that only writes
    double read_token_us     # one more prompt token in a step
    double read_room         # with a device: prompt tokens beside writers that keep to the gap
    double line[5]           # sums for that: of 1, tokens, µs, tokens², tokens·µs
    double wait_us           # of a step that only writes: after decode() has returned, for the device

    # Of this step.
    int32_t budget
    int32_t n_writing
    int32_t n_deferred       # writers that sit this step out because their last pick is still made
    int32_t n_reading        # slots that read a prompt, in this step or later
    int32_t n_reading_tokens
    int32_t n_rows           # tokens that give their logits
    int32_t n_fillers        # slots without a task in the batch, so that it is one graph
    int64_t plan_us

cdef int plan_init(Plan *plan, int32_t batch_max, int32_t ubatch, int32_t tokens_max, int32_t can_mix,
                   int32_t has_device) noexcept nogil
cdef void plan_free(Plan *plan) noexcept nogil
cdef void plan_make(Plan *plan, Slots *slots) noexcept nogil
cdef void plan_learn(Plan *plan, int64_t decode_us, int64_t wait_us) noexcept nogil
cdef int plan_has_device(const Plan *plan) noexcept nogil
