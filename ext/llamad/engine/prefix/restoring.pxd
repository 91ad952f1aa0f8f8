# Prompts that slots get back from the prompt cache in parts, while other slots run.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.kv.slots cimport Slot
from llamad.engine.state.engine_state cimport State

cdef int restoring_pays(const State *state, const Slot *slot, uint64_t id) noexcept nogil
cdef void restoring_begin(State *state, Slot *slot, uint64_t id, int32_t n) noexcept nogil
cdef void restoring_end(State *state, Slot *slot) noexcept nogil
cdef Slot *restoring_oldest(State *state) noexcept nogil
cdef void restoring_next(State *state, Slot *slot) noexcept nogil
