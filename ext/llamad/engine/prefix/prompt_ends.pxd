from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.state.engine_state cimport State

cdef int prompt_end_is_wanted(const State *state, const Slot *slot) noexcept nogil
cdef void prompt_ends_keep(State *state) noexcept nogil
cdef const float *prompt_end_row(const State *state, const Task *task) noexcept nogil
cdef void prompt_ends_run(State *state) noexcept nogil
cdef void prompt_ends_free(State *state) noexcept nogil
