# Actions on slots: save, restore, erase, shift, list tokens.
from libc.stdint cimport int32_t, uint64_t

from llamad.engine.state.engine_state cimport State
from llamad.protocol.messages cimport ActionCommand

cdef void actions_add(State *state, const ActionCommand *command) noexcept nogil
cdef int32_t actions_run(State *state) noexcept nogil
cdef void actions_drop(State *state, uint64_t id) noexcept nogil
cdef void actions_drop_all(State *state, int32_t result) noexcept nogil
