# Decides which slots have the next step on a CPU: the decoding ones, the prefilling ones, or both.
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.scheduler.plan cimport Plan

cdef enum:
    TURN_BOTH = 0
    TURN_PREFILL = 1
    TURN_DECODE = 2

cdef int prefill_cpu_turn(Plan *plan, const Slots *slots, const Slot *first) noexcept nogil
cdef void prefill_cpu_learn(Plan *plan, double decode_us) noexcept nogil
