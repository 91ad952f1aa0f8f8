# How a slot gets the beginning of a prompt without reading it: its own, or another slot's, busy or not, or one from the
# prompt cache in host memory.
from libc.stdint cimport int32_t

from llamad.engine.state cimport State
from llamad.engine.kv.slots cimport Slot, Slots
from llamad.engine.kv.task_queue cimport Task

cdef int share_is_held(const Slots *slots, const Task *task) noexcept nogil
cdef int share_hold(State *state, Task *task) noexcept nogil
cdef void share_prepare(State *state, Slot *slot, const Task *task) noexcept nogil
cdef int share_is_spent(const State *state) noexcept nogil
cdef int32_t share_evict_idle(State *state, const Slot *spared) noexcept nogil
cdef int share_has_room(State *state, const Slot *slot, int32_t n_tokens) noexcept nogil
