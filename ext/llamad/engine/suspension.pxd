from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.state.engine_state cimport State

cdef int suspension_yields(const Slot *slot, const Slot *other) noexcept nogil
cdef Slot *suspension_choose(Slots *slots) noexcept nogil
cdef void suspension_suspend(State *state, Slot *slot) noexcept nogil
cdef int suspension_is_waiting(const Slots *slots) noexcept nogil
cdef void suspension_run(State *state) noexcept nogil
cdef void suspension_recompute(State *state, Slot *slot) noexcept nogil
cdef void suspension_suspend_all(State *state) noexcept nogil
