# How loop and engine are awake by the time that the other has something for them.
from llamad.engine.state cimport State

cdef void rouse_engine(State *state) noexcept nogil
cdef void rouse_loop(State *state) noexcept nogil
cdef void rouse_await_events(State *state) noexcept nogil
