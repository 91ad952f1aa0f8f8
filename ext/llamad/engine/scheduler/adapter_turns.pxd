# Whose turn it is if running tasks need different adapters.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.kv.slots cimport Slot, Slots

ctypedef struct AdapterTurns:
    uint64_t set             # the set whose turn it is
    const Slot *slot         # a slot that needs the set; NULL: no slot has work
    int64_t t_begin_us
    int32_t is_new           # the set changes in this step, so the graph is rebuilt
    double change_us         # the learned cost of a change; 0: unknown

cdef void turns_learn(AdapterTurns *turns, double cost_us) noexcept nogil
cdef void turns_choose(AdapterTurns *turns, Slots *slots, int64_t now) noexcept nogil
