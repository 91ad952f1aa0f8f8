# The step loop.
from llamad.engine.core cimport State

cdef void engine_run(State *state) noexcept nogil
