# Lets tasks go on that an earlier engine began.
from llamad.engine.state.engine_state cimport State

cdef void replay_run(State *state) noexcept nogil
