# How front and engine are awake by the time the other has something for them.
from llamad.protocol.channel cimport Channel

cdef void wakeup_engine(Channel *channel) noexcept nogil
cdef void wakeup_front(Channel *channel) noexcept nogil
cdef void wakeup_await_events(Channel *channel) noexcept nogil
