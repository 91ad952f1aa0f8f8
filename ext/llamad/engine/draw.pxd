# The picks of a step.
from libc.stdint cimport int64_t

from llamad.engine.core cimport State

cdef int64_t draw_all(State *state, int64_t t_decoded) noexcept nogil
