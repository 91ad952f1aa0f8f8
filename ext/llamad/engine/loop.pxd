# The step loop.
from llamad.engine.state cimport State

cdef void engine_run(State *state) noexcept nogil
