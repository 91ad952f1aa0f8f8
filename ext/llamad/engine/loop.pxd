# The step loop.
from llamad.engine.state.engine_state cimport State

cdef void engine_run(State *state) noexcept nogil
