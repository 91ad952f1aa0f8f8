# The decode of an image's or a sound's rows.
from libc.stdint cimport int32_t

from llamad.engine.state.engine_state cimport State

cdef int32_t media_step_run(State *state) noexcept nogil
