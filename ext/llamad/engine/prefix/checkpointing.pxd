# Decides when checkpoints of a prefilling slot are made.
from libc.stdint cimport int32_t

from llamad.engine.kv.slots cimport Slot
from llamad.engine.kv.task_queue cimport Task
from llamad.engine.state.engine_state cimport State

cdef void checkpointing_plan(State *state, Slot *slot, const Task *task, int32_t n_seen) noexcept nogil
cdef void checkpointing_run(State *state) noexcept nogil
cdef int checkpointing_trim(State *state) noexcept nogil
cdef void checkpointing_add(State *state, Slot *slot) noexcept nogil
