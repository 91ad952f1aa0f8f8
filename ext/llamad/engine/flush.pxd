# Copies and moves that llama.cpp has left for its next decode, done now.
from llamad.engine.state cimport State
from llamad.engine.kv.slots cimport Slot

cdef int settle(State *state, Slot *slot) noexcept nogil
