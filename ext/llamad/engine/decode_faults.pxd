# Handles failed decodes.
from libc.stdint cimport int32_t

from llamad.engine.state.engine_state cimport State

cdef void faults_isolate(State *state) noexcept nogil
cdef void faults_passed(State *state) noexcept nogil
cdef void faults_adapters(State *state, int32_t code) noexcept nogil
cdef void faults_media(State *state, int32_t code) noexcept nogil
cdef void faults_decode(State *state, int32_t code, int32_t first, int32_t end) noexcept nogil
