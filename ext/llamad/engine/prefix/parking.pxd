# Idle prefixes that are saved to host memory, and wait there while other slots run.
from libc.stdint cimport int32_t, int64_t

from llamad.engine.kv.slots cimport Slot
from llamad.engine.state.engine_state cimport State

cdef void parking_run(State *state, const Slot *spared) noexcept nogil
cdef void parking_stock(State *state, const Slot *slot) noexcept nogil
cdef int parking_save_next(State *state, int64_t now) noexcept nogil
cdef int parking_may_save(State *state, int64_t step_us) noexcept nogil
cdef void parking_save_beside(State *state) noexcept nogil
cdef void parking_save_last(State *state) noexcept nogil
cdef int parking_timeout_ms(const State *state, int64_t now) noexcept nogil
cdef void parking_return(State *state, Slot *slot) noexcept nogil
