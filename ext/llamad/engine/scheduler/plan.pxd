# What goes into a step's batch: a token for every writing slot, then prompt chunks up to the budget.
from libc.stdint cimport int8_t, int32_t, int64_t

from llamad.engine.kv.slots cimport SLOT_WRITING, Slot, Slots
from llamad.base.table cimport llamad_batch

cdef enum:
    # Prompt tokens of one step that may give their logits: a row of the vocabulary each, for which llama.cpp keeps
    # the room ever after. More than n_batch of them would abort it.
    PROMPT_OUTPUTS_MAX = 64
    DEVICE_US_MIN = 100
    BESIDE_SIZES = 6

ctypedef struct Plan:
    llamad_batch batch       # its first n_apart tokens are decoded by themselves
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
    double best_token_us     # the same, nearly as low as it was seen; 0: not known
    int32_t n_reads          # steps that told, up to three
    double wait_us           # of a step that only writes: after decode() has returned, for the device

    # With a device: prefill_gpu.pyx.
    int32_t read_room        # prompt tokens beside writers that keep to the gap
    double size_us[BESIDE_SIZES]        # what reading so many costs beyond write_us: 128 tokens, 256, ...; 0: not known
    double credit_us         # how long writers may sit out
    int64_t t_made_us        # when that was last reckoned

    # With a device: fillers.pyx.
    int32_t width            # streams of the last batch of writers
    int32_t n_kept           # steps for which it was kept although fewer would do

    # Without one: prefill_cpu.pyx.
    double room_us           # what this step may take for reading
    double turn_us           # prompts were read so long since the last step that wrote
    int32_t n_wrote          # writers of that step

    # Of this step.
    int32_t budget
    int32_t n_writing
    int32_t n_sitting        # writers that let prompts be read first
    int32_t n_deferred       # writers that sit this step out because their last pick is still made
    int32_t n_reading        # slots that read a prompt, in this step or later
    int32_t n_unread         # tokens of their prompts
    int32_t n_reading_tokens # those that are read in this step
    int32_t is_apart         # prompts are read in a decode of their own, all but the last token of each
    int32_t n_apart          # tokens of that decode
    int32_t n_rows           # tokens that give their logits
    int32_t n_fillers        # tokens that are there for the batch's shape alone, each in a slot of its own
    int32_t n_pads           # and those behind prompts
    int32_t is_one_graph     # nothing but prompts, and llama.cpp computes all of them at once
    int32_t is_refused       # a prompt was left for later, although there was room for it alone
    int64_t plan_us

cdef int plan_init(Plan *plan, int32_t batch_max, int32_t ubatch, int32_t tokens_max, int32_t can_mix,
                   int32_t has_device) noexcept nogil
cdef void plan_free(Plan *plan) noexcept nogil
cdef void plan_make(Plan *plan, Slots *slots) noexcept nogil
cdef void plan_learn(Plan *plan, int64_t decode_us, int64_t wait_us) noexcept nogil
cdef llamad_batch plan_part(const Plan *plan, int32_t begin, int32_t end) noexcept nogil


cdef inline int plan_has_output(const Plan *plan, const Slot *slot) noexcept nogil:
    """Whether the slot has a token in the decode that gives logits."""
    if slot.n_planned == 0:
        return 0
    return slot.state == SLOT_WRITING or not plan.is_apart or slot.n_tokens + slot.n_planned == slot.task.command.n_prompt


cdef inline int plan_has_device(const Plan *plan) noexcept nogil:
    """Whether the engine waits for somebody else's computing: then cores are free meanwhile, and another graph costs
    more than some more tokens in one."""
    return plan.has_device or (plan.wait_us > DEVICE_US_MIN and plan.wait_us > 0.3 * plan.write_us)
