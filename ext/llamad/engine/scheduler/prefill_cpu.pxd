# Who has the next step where the host itself computes: those who write, or those who read.
from llamad.engine.scheduler.plan cimport Plan
from llamad.engine.kv.slots cimport Slot, Slots

cdef enum:
    # llama.cpp's flash attention on the CPU works in tiles of 64 queries of one sequence; below that a token costs
    # many times as much (measured, 135M model, 800 tokens of context: 64 in 0.3 s, 63 in 2.5 s).
    TILE = 64

    TURN_BOTH = 0
    TURN_READ = 1
    TURN_WRITE = 2

cdef int turns_take(Plan *plan, const Slots *slots, const Slot *first) noexcept nogil
cdef void turns_learn(Plan *plan, double decode_us) noexcept nogil
