from libc.stdint cimport int64_t, uint64_t

from llamad.engine.state.engine_state cimport State

cdef void publish_turn(State *state, int64_t now) noexcept nogil
cdef void publish_rest(State *state, int64_t now) noexcept nogil
cdef void publish_task(State *state, uint64_t id) noexcept nogil
cdef void publish_counts(State *state) noexcept nogil
