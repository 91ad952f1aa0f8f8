# Makes llama.cpp do the copies and moves that it has left for its next decode.
from llamad.engine.state.engine_state cimport State
from llamad.engine.kv.slots cimport Slot

cdef int flush_pending(State *state, Slot *slot) noexcept nogil
