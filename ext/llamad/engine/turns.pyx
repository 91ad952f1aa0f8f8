# Owns: whose turn a step is where the host itself computes. Runs on the engine thread; decides, changes only the plan.
#
# Mixed steps save nothing there: llama.cpp computes the prompt in a graph of its own, and the token of it that goes
# with the writers leaves less than a tile of a chunk. So a step either writes or reads. After a step that wrote, prompts
# are read for as long as the gap between a writer's tokens allows: GAP_FACTOR times a step that writes. A token that is
# written delays all who wait for their first one, so where these are many and will soon have it, the gap is stretched by
# how many they are, up to SIT_OUT_US. A prompt that takes long to read stretches nothing: it would, again and again.
from libc.stdint cimport int32_t

from llamad.engine.slots cimport SLOT_READING, Slot, Slots
from llamad.engine.turns cimport TILE

cdef enum:
    GAP_US_MIN = 20000
    READ_STEP_US = 400000
    SIT_OUT_US = 2000000
    SHORT_READ_US = 2000000
    # A first token is worth as much as so many others.
    FIRST_WORTH = 16

cdef double GAP_FACTOR = 2.5
cdef double LEARN_RATE = 0.2


cdef int _is_short(const Plan *plan, const Slot *slot) noexcept nogil:
    """Whether all of the prompt, also what is read of it already, takes little time."""
    return (slot.task.command.n_prompt - slot.n_cached) * plan.read_token_us <= SHORT_READ_US


cdef double _gap_room_us(const Plan *plan, const Slots *slots, const Slot *first) noexcept nogil:
    """How long prompts may be read between two steps that write."""
    cdef int32_t i, n_short = 0
    cdef double write_us = plan.write_us * (plan.n_sitting + 1) / (plan.n_wrote + 1)
    cdef double room_us = max(GAP_FACTOR * write_us, <double>GAP_US_MIN) - write_us
    if _is_short(plan, first):
        for i in range(slots.n):
            if slots.items[i].state == SLOT_READING and _is_short(plan, &slots.items[i]):
                n_short += 1
    return max(room_us, min(room_us * FIRST_WORTH * n_short / plan.n_sitting, <double>SIT_OUT_US))


cdef int turns_may_read(Plan *plan, const Slots *slots, const Slot *first) noexcept nogil:
    """Whether this step is the readers', of whom `first` is next; room_us is then what it may take. At least one step of
    theirs follows each of the writers', who need none while each of them waits for a grammar or for its client."""
    plan.room_us = READ_STEP_US
    plan.n_sitting = plan.n_writing + plan.n_deferred
    if plan.n_sitting == 0:
        return 1
    plan.room_us = min(plan.room_us, max(0.0, _gap_room_us(plan, slots, first) - plan.turn_us))
    return plan.n_writing == 0 or plan.turn_us == 0 or plan.room_us >= TILE * plan.read_token_us


cdef void turns_learn(Plan *plan, double decode_us) noexcept nogil:
    """What the step just decoded cost."""
    if plan.n_reading_tokens:
        plan.turn_us = plan.turn_us + decode_us if plan.n_sitting else 0
        return
    # What a step costs depends on how many write: what was learned goes over to the number of now.
    plan.write_us *= (plan.n_writing + 1.0) / (plan.n_wrote + 1.0)
    plan.write_us += LEARN_RATE * (decode_us - plan.write_us) if plan.write_us > 0 else decode_us
    plan.n_wrote = plan.n_writing
    plan.turn_us = 0
