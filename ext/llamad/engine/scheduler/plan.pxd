# The plan of a step, and the costs of past steps. Only data: batch.pyx makes the plan, and the files beside it decide
# parts of it. Used by the engine thread.
from libc.stdint cimport int8_t, int32_t, int64_t

from llamad.base.function_table cimport llamad_batch
from llamad.engine.costs.scheduler cimport DEVICE_WAIT_PART, DEVICE_WAIT_US_MIN
from llamad.engine.kv.slots cimport SLOT_DECODING, Slot
from llamad.engine.scheduler.adapter_turns cimport AdapterTurns
from llamad.engine.scheduler.prefill_order cimport PrefillOrder
from llamad.engine.scheduler.token_costs cimport TokenCosts

cdef enum:
    # The most prompt tokens of one step that may have outputs: each needs a row of the vocabulary, and llama.cpp keeps
    # that memory from then on. More than n_batch of them would make it abort.
    PROMPT_OUTPUTS_MAX = 64
    CHUNK_SIZES = 6

ctypedef struct Plan:
    llamad_batch batch       # its first n_separate tokens are a separate decode
    int32_t batch_max        # llama.cpp's n_batch: it aborts with more tokens
    int32_t ubatch           # llama.cpp's n_ubatch: the most that it computes at once
    int32_t rows_max         # llama.cpp's n_outputs_max: it aborts with more tokens that have logits
    int32_t *seq_ids         # one for each token of the batch
    int8_t *is_decode        # for each token of the batch: it was sampled, and is not of a prompt
    int32_t tokens_max       # fixed budget, 0: adaptive
    int32_t tokens_cap       # temporary limit, because there was no room for twice as many; 0: none
    int32_t has_device       # a GPU computes: a step has a high fixed cost, and tokens cost little
    int32_t can_mix          # continuous batching: prompts are prefilled while other slots decode
    int32_t can_separate     # prefill may be a separate decode while other slots decode

    # Learned from past steps.
    double decode_step_us    # cost of a step that only decodes
    double prefill_token_us  # cost of one more prompt token in a step
    double best_token_us     # the same, close to the lowest that was seen; 0: unknown
    TokenCosts token_costs   # the same, by position
    int32_t n_prefills       # number of steps it was learned from, up to three
    double wait_us           # wait for the device after decode() in a step that only decodes

    # With a GPU: prefill_gpu.pyx.
    int32_t prefill_room     # prompt tokens that keep the gap short enough, while other slots decode
    double chunk_us[CHUNK_SIZES]        # a chunk's cost beyond decode_step_us: 128 tokens, 256, ...; 0: unknown
    double credit_us         # how long decoding slots may stall
    int64_t t_credit_us      # when that was last computed

    # With a GPU: fillers.pyx.
    int32_t width            # streams of the last decoding batch
    int32_t n_kept           # steps for which it was kept although fewer streams would be enough

    # On the CPU: prefill_cpu.pyx.
    double room_us           # time that prefill may take in this step
    double prefill_us        # time spent on prefill since the last step that decoded
    int32_t n_decoded_last   # decoding slots of that step

    # The current step and those before.
    AdapterTurns turns
    PrefillOrder order

    # The current step.
    int32_t budget
    int32_t n_decoding
    int32_t n_stalled        # decoding slots that sit this step out because of prefill
    int32_t n_deferred       # decoding slots whose last token is still being sampled
    int32_t n_prefilling     # slots with a prompt, in this step or later
    int32_t n_prompt_left    # tokens that are left of their prompts
    int32_t n_prefill_tokens  # the ones in this step
    int32_t is_separate      # prefill is a separate decode, except the last token of each prompt
    int32_t n_separate       # tokens of that decode
    int32_t n_draft          # tokens behind the next one of each decoding slot: its draft; 0: nothing is drafted
    int32_t n_rows           # tokens with logits
    Slot *media_slot         # the slot whose rows are a separate decode; NULL: none
    int32_t n_media          # how many rows
    int32_t can_split_media  # the rows may be decoded in smaller pieces
    int32_t n_fillers        # tokens only for the batch's shape, each in another slot
    int32_t n_padding        # padding tokens after prompts
    int32_t is_one_graph     # only prompts, which llama.cpp computes in one graph
    int32_t is_put_off       # a prompt was put off, although there was room for it alone
    int64_t plan_us


cdef inline int plan_has_output(const Plan *plan, const Slot *slot) noexcept nogil:
    """Return whether the slot has a token in the decode that gives logits."""
    if slot.n_planned == 0:
        return 0
    return (slot.state == SLOT_DECODING or not plan.is_separate
            or slot.n_tokens + slot.n_planned == slot.n_prefill)


cdef inline int plan_has_media(const Plan *plan, const Slot *slot) noexcept nogil:
    """Return whether the slot is within an image or a sound. Its rows may take no position until the last of them has
    come, so a token that is decoded and removed again would remove rows too."""
    return slot == plan.media_slot or slot.n_partial > 0


cdef inline int plan_has_device(const Plan *plan) noexcept nogil:
    """Return whether another processor computes. Then cores are free meanwhile, and one more graph costs more than some
    more tokens in one."""
    return plan.has_device or (plan.wait_us > DEVICE_WAIT_US_MIN
                               and plan.wait_us > DEVICE_WAIT_PART * plan.decode_step_us)
