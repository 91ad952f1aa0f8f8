# Whose turn it is where running tasks want different adapters.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.engine.kv.slots cimport Slot, Slots

ctypedef struct AdapterTurns:
    uint64_t set             # the set whose turn it is
    const Slot *slot         # one that wants it; NULL: nobody has work
    int64_t t_begin_us
    int32_t is_new           # it changed in this step: the graph is made anew
    double change_us         # what that costs, learned; 0: not known

cdef void turns_learn(AdapterTurns *turns, double cost_us) noexcept nogil
cdef void turns_choose(AdapterTurns *turns, Slots *slots, int64_t now) noexcept nogil
