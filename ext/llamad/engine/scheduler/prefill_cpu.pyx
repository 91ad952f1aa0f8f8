# Owns: whose turn a step is where the host itself computes. Runs on the engine thread; decides, changes only the plan.
#
# A long prompt is read beside those who write, a chunk in each step: no step lacks a writer's token, and the gap between
# two of them is GAP_FACTOR times a step that only writes. llama.cpp computes such a step in two graphs, of which the
# first has the writers and one token of the chunk.
#
# For a short prompt that is a waste: the rest of it is less than a tile, and every token that is written delays all who
# wait for their first one. So while short prompts are read, a step either writes or reads. The time between two that
# write is stretched by how many wait, up to SIT_OUT_US.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport SLOT_READING, Slot, Slots
from llamad.engine.scheduler.prefill_cpu cimport TILE, TURN_BOTH, TURN_READ, TURN_WRITE

cdef enum:
    GAP_US_MIN = 20000
    READ_STEP_US = 400000
    SIT_OUT_US = 2000000
    SHORT_READ_US = 2000000
    SHORT_TOKENS = 1024
    # A first token is worth as much as so many others.
    FIRST_WORTH = 16

cdef double GAP_FACTOR = 2.5
cdef double LEARN_RATE = 0.2


cdef int _is_short(const Plan *plan, const Slot *slot) noexcept nogil:
    """Of all of the prompt, also of what is read of it already: else the end of every prompt would be short."""
    cdef int32_t n = slot.task.command.n_prompt - slot.n_cached
    return n <= SHORT_TOKENS and n * plan.read_token_us <= SHORT_READ_US


cdef double _stretched_us(const Plan *plan, const Slots *slots, double room_us) noexcept nogil:
    """The room between two steps that write while those who wait are many."""
    cdef int32_t i, n_short = 0
    for i in range(slots.n):
        if slots.items[i].state == SLOT_READING and _is_short(plan, &slots.items[i]):
            n_short += 1
    return max(room_us, min(room_us * FIRST_WORTH * n_short / plan.n_sitting, <double>SIT_OUT_US))


cdef int turns_take(Plan *plan, const Slots *slots, const Slot *first) noexcept nogil:
    """Whose step this is, where `first` is the next to read; room_us is what reading may take in it. After each step of
    the writers comes at least one of the readers; writers of whom each waits for a grammar or for its client need none."""
    cdef int32_t n_writers = plan.n_writing + plan.n_deferred
    cdef double write_us = plan.write_us * (n_writers + 1) / (plan.n_wrote + 1), room_us, left_us
    plan.n_sitting = 0
    plan.room_us = READ_STEP_US
    if n_writers == 0:
        return TURN_BOTH
    room_us = max(GAP_FACTOR * write_us, <double>GAP_US_MIN) - write_us
    if not _is_short(plan, first):
        plan.room_us = min(plan.room_us, room_us)
        return TURN_BOTH
    plan.n_sitting = n_writers
    left_us = max(0.0, _stretched_us(plan, slots, room_us) - plan.turn_us)
    plan.room_us = min(plan.room_us, left_us)
    # A tile is read at once, also where it takes longer than a step should.
    if plan.n_writing == 0 or plan.turn_us == 0 or left_us >= TILE * plan.read_token_us:
        return TURN_READ
    return TURN_WRITE


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
