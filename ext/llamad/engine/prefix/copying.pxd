from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.state.engine_state cimport State

cdef int32_t prefix_copy_reaches(Slots *slots, const Slot *source, const Task *task, int32_t n) noexcept nogil
cdef int32_t prefix_copy_gain(const Slots *slots, const Slot *source, const Task *task) noexcept nogil
cdef int prefix_copy(State *state, Slot *slot, const Slot *source, int32_t n) noexcept nogil
