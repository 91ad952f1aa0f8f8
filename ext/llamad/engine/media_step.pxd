# Decodes the rows of an image or a sound.
from libc.stdint cimport int32_t

from llamad.engine.state.engine_state cimport State

cdef int32_t media_step_run(State *state) noexcept nogil
