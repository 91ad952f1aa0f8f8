# Decides which waiting tasks get a slot, and when.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.kv.task_queue cimport Task
from llamad.engine.state.engine_state cimport State

cdef void admission_drop(State *state, Task *task, int32_t failure) noexcept nogil
cdef void admission_expire(State *state, int64_t now) noexcept nogil
cdef int32_t admission_run(State *state, int is_announced) noexcept nogil
cdef void admission_announce(State *state) noexcept nogil
