# Makes room in the context for the next tokens.
from llamad.engine.state.engine_state cimport State

cdef void context_make_room(State *state) noexcept nogil
