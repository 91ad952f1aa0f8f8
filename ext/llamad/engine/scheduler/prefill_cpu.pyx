# Owns: whose turn a step is on a CPU. Runs on the engine thread; changes only the plan.
#
# A long prompt is prefilled beside the decoding slots, a chunk in each step: every step has a token of each decoding
# slot, and the gap between two of them is GAP_FACTOR times a step that only decodes. llama.cpp computes such a step in
# two graphs, the first with the decoding slots and one token of the chunk.
#
# For a short prompt that is inefficient: the rest of it is less than a tile, and every decoded token delays all slots
# that wait for their first one. So while short prompts are prefilled, a step either decodes or prefills. The time
# between two decoding steps grows with the number of waiting slots, up to CPU_STALL_US_MAX.
from libc.stdint cimport int32_t

from llamad.engine.costs.scheduler cimport (
    CPU_GAP_US_MIN, CPU_PREFILL_US_MAX, CPU_STALL_US_MAX, FIRST_TOKEN_WEIGHT, FLASH_TILE, GAP_FACTOR, LEARN_RATE,
    SHORT_PROMPT_TOKENS_MAX, SHORT_PROMPT_US_MAX,
)
from llamad.engine.kv.slots cimport SLOT_PREFILLING, Slot, Slots


cdef int _is_short(const Plan *plan, const Slot *slot) noexcept nogil:
    """Return whether the prompt is short. Prefilled tokens count too, because otherwise the end of any prompt would be
    short."""
    cdef int32_t n = slot.n_prefill - slot.n_begun
    return n <= SHORT_PROMPT_TOKENS_MAX and n * plan.prefill_token_us <= SHORT_PROMPT_US_MAX


cdef double _stretched_us(const Plan *plan, const Slots *slots, double room_us) noexcept nogil:
    """Return the time between two decoding steps while many slots wait."""
    cdef int32_t i, n_short = 0
    for i in range(slots.n):
        if slots.items[i].state == SLOT_PREFILLING and _is_short(plan, &slots.items[i]):
            n_short += 1
    return max(room_us, min(room_us * FIRST_TOKEN_WEIGHT * n_short / plan.n_stalled, <double>CPU_STALL_US_MAX))


cdef int prefill_cpu_turn(Plan *plan, const Slots *slots, const Slot *first) noexcept nogil:
    """Return whose step this is; `first` is the next to prefill, and room_us becomes the time that prefill may take.
    Each decoding step is followed by at least one prefill step. Slots that all wait for a grammar or for their client
    need no step."""
    cdef int32_t n_slots = plan.n_decoding + plan.n_deferred
    cdef double step_us = plan.decode_step_us * (n_slots + 1) / (plan.n_decoded_last + 1), room_us, left_us
    plan.n_stalled = 0
    plan.room_us = CPU_PREFILL_US_MAX
    if n_slots == 0:
        return TURN_BOTH
    room_us = max(GAP_FACTOR * step_us, <double>CPU_GAP_US_MIN) - step_us
    if not _is_short(plan, first):
        plan.room_us = min(plan.room_us, room_us)
        return TURN_BOTH
    plan.n_stalled = n_slots
    left_us = max(0.0, _stretched_us(plan, slots, room_us) - plan.prefill_us)
    plan.room_us = min(plan.room_us, left_us)
    # A tile is prefilled at once, even if it takes longer than a step should.
    if plan.n_decoding == 0 or plan.prefill_us == 0 or left_us >= FLASH_TILE * plan.prefill_token_us:
        return TURN_PREFILL
    return TURN_DECODE


cdef void prefill_cpu_learn(Plan *plan, double decode_us) noexcept nogil:
    """Learn from the cost of the last step."""
    if plan.n_prefill_tokens:
        plan.prefill_us = plan.prefill_us + decode_us if plan.n_stalled else 0
        return
    # The cost of a step depends on how many slots decode, so the learned cost is scaled to their number.
    plan.decode_step_us *= (plan.n_decoding + 1.0) / (plan.n_decoded_last + 1.0)
    plan.decode_step_us += LEARN_RATE * (decode_us - plan.decode_step_us) if plan.decode_step_us > 0 else decode_us
    plan.n_decoded_last = plan.n_decoding
    plan.prefill_us = 0
