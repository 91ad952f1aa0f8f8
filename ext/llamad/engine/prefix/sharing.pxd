# How a slot gets a prefix of a prompt without prefilling it: from what it holds, from another slot, busy or not, or
# from the prompt cache in host memory.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.state.engine_state cimport State

cdef int prefix_is_awaited(const Slots *slots, const Task *task) noexcept nogil
cdef int prefix_should_wait(State *state, Task *task) noexcept nogil
cdef void prefix_prepare(State *state, Slot *slot, const Task *task) noexcept nogil
cdef Slot *prefix_fork(Slots *slots, Slot *slot, const Task *task) noexcept nogil
cdef int prefix_is_saved(const State *state, const Slot *slot) noexcept nogil
cdef int prefix_is_given_up(State *state, Slot *slot, const Task *task) noexcept nogil
cdef int prefix_has_room(State *state, Slot *slot, const Task *task) noexcept nogil
cdef int prefix_time_is_up(const State *state) noexcept nogil
cdef void prefix_evict(State *state, Slot *slot) noexcept nogil
cdef int32_t prefix_evict_idle(State *state, const Slot *spared) noexcept nogil
cdef int prefix_make_room(State *state, const Slot *slot, int32_t n_tokens) noexcept nogil
cdef int32_t prefix_shared_running(Slots *slots, const Task *task) noexcept nogil
