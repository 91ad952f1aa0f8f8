# The picks of a step.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.state cimport State
from llamad.engine.kv.slots cimport Slot

cdef void draw_alert(State *state, int64_t t_decode) noexcept nogil
cdef int64_t draw_begin(State *state, int64_t t_decode, int64_t t_decoded) noexcept nogil
cdef Slot *draw_next(State *state, int32_t i, int64_t *waited_us) noexcept nogil
cdef void draw_end(State *state) noexcept nogil
cdef void draw_settle(State *state) noexcept nogil
