# The plan of a step, and what past steps cost. Data alone: batch.pyx makes the plan, the files beside it decide parts
# of it. The engine thread's.
from libc.stdint cimport int8_t, int32_t, int64_t

from llamad.base.function_table cimport llamad_batch
from llamad.engine.costs.scheduler cimport DEVICE_WAIT_PART, DEVICE_WAIT_US_MIN
from llamad.engine.kv.slots cimport SLOT_DECODING, Slot
from llamad.engine.scheduler.adapter_turns cimport AdapterTurns
from llamad.engine.scheduler.prefill_order cimport PrefillOrder

cdef enum:
    # Prompt tokens of one step that may give their logits: a row of the vocabulary each, for which llama.cpp keeps
    # the room ever after. More than n_batch of them would abort it.
    PROMPT_OUTPUTS_MAX = 64
    CHUNK_SIZES = 6

ctypedef struct Plan:
    llamad_batch batch       # its first n_separate tokens are a decode of their own
    int32_t batch_max        # llama.cpp's n_batch: more aborts it
    int32_t ubatch           # llama.cpp's n_ubatch: what it computes at once
    int32_t *seq_ids         # one for each token of the batch
    int8_t *is_decode        # likewise: a sampled token, not a prompt's
    int32_t tokens_max       # fixed budget, 0: adaptive
    int32_t tokens_cap       # there was no room for twice as many; 0: none
    int32_t has_device       # a GPU computes: a step costs much whatever it holds, tokens cost little
    int32_t can_mix          # continuous batching: prompts are prefilled while other slots decode
    int32_t can_separate     # prefill may be a decode of its own while other slots decode

    # Learned from past steps.
    double decode_step_us    # a step that only decodes
    double prefill_token_us  # one more prompt token in a step
    double best_token_us     # the same, nearly the lowest seen; 0: not known
    int32_t n_prefills       # steps it was learned from, counted up to three
    double wait_us           # of a step that only decodes: after decode() has returned, for the device

    # With a GPU: prefill_gpu.pyx.
    int32_t prefill_room     # prompt tokens that keep the gap, while other slots decode
    double chunk_us[CHUNK_SIZES]        # a chunk's cost beyond decode_step_us: 128 tokens, 256, ...; 0: not known
    double credit_us         # how long decoding slots may stall
    int64_t t_credit_us      # when that was last computed

    # With a GPU: fillers.pyx.
    int32_t width            # streams of the last decoding batch
    int32_t n_kept           # steps for which it was kept although fewer would do

    # On the CPU: prefill_cpu.pyx.
    double room_us           # what prefill may take in this step
    double prefill_us        # spent on prefill since the last step that decoded
    int32_t n_decoded_last   # decoding slots of that step

    # Of this step and those before.
    AdapterTurns turns
    PrefillOrder order

    # Of this step.
    int32_t budget
    int32_t n_decoding
    int32_t n_stalled        # decoding slots that sit this step out for prefill
    int32_t n_deferred       # decoding slots that sit it out because their last token is still being sampled
    int32_t n_prefilling     # slots with a prompt, in this step or later
    int32_t n_prompt_left    # tokens of their prompts
    int32_t n_prefill_tokens  # those of this step
    int32_t is_separate      # prefill is a decode of its own, but for the last token of each prompt
    int32_t n_separate       # tokens of that decode
    int32_t n_rows           # tokens that give their logits
    Slot *media_slot         # whose rows are a decode of their own; NULL: none
    int32_t n_media          # how many
    int32_t can_split_media  # they may be decoded in smaller pieces
    int32_t n_fillers        # tokens that are there for the batch's shape alone, each in a slot of its own
    int32_t n_padding        # and those after prompts
    int32_t is_one_graph     # nothing but prompts, and llama.cpp computes all of them at once
    int32_t is_put_off       # a prompt was left for later, although there was room for it alone
    int64_t plan_us


cdef inline int plan_has_output(const Plan *plan, const Slot *slot) noexcept nogil:
    """Whether the slot has a token in the decode that gives logits."""
    if slot.n_planned == 0:
        return 0
    return (slot.state == SLOT_DECODING or not plan.is_separate
            or slot.n_tokens + slot.n_planned == slot.n_prefill)


cdef inline int plan_has_media(const Plan *plan, const Slot *slot) noexcept nogil:
    """Whether the slot is within an image or a sound, whose rows may take no position before the last of them has come:
    a token that is decoded and removed again would take rows with it."""
    return slot == plan.media_slot or slot.n_partial > 0


cdef inline int plan_has_device(const Plan *plan) noexcept nogil:
    """Whether another processor computes: then cores are free meanwhile, and one more graph costs more than some more
    tokens in one."""
    return plan.has_device or (plan.wait_us > DEVICE_WAIT_US_MIN
                               and plan.wait_us > DEVICE_WAIT_PART * plan.decode_step_us)
