# Samples the tokens of a step.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.state.engine_state cimport State
from llamad.engine.kv.slots cimport Slot

cdef void sample_step_alert(State *state, int64_t t_decode) noexcept nogil
cdef int64_t sample_step_begin(State *state, int64_t t_decode, int64_t t_decoded) noexcept nogil
cdef Slot *sample_step_next(State *state, int32_t i, int64_t *waited_us) noexcept nogil
cdef void sample_step_end(State *state) noexcept nogil
cdef void sample_step_drain(State *state) noexcept nogil
cdef void sample_step_alone(State *state, Slot *slot, const float *row) noexcept nogil
cdef void sample_step_open(State *state, Slot *slot) noexcept nogil
