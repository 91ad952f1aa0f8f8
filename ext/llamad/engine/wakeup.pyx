# Owns: how a side that sleeps is woken before there is something for it, where a device computes.
#
# To wake a thread on a core that sleeps takes 50 to 100 µs, and what it then does is slow at first. Both sides know
# beforehand: the loop when it reads the first of several requests (wakeup.py), the engine's threads when the last
# logits of a step with somebody's first token are on their way, or are there. The other side is told, and spins for the
# short rest (the engine in loop.pyx, where it admits each task while the loop reads the next). Where the host itself
# computes its cores are wanted for that, and nobody spins.
from libc.stdint cimport int64_t

from llamad.protocol.ring cimport ring_is_empty
from llamad.base.system cimport load_int, now_us, relax, store_int, wake_send

cdef enum:
    EVENTS_US = 200          # the loop spins so long at most


cdef void rouse_engine(State *state) noexcept nogil:
    """The loop's: tasks come one after the other from now on, and the last is followed by core.wake()."""
    if state.plan.has_device:
        store_int(&state.is_gathering, 1)
        wake_send(state.command_fd)


cdef void rouse_loop(State *state) noexcept nogil:
    """The engine's and its sampler threads': events come in a moment, and emit_wake() says when that was all. Only where a
    device computes."""
    store_int(&state.is_emitting, 1)
    wake_send(state.event_fd)


cdef void rouse_await_events(State *state) noexcept nogil:
    """The loop's: returns when there is an event or none is to come."""
    cdef int64_t t_end
    if load_int(&state.is_emitting):
        t_end = now_us() + EVENTS_US
        while ring_is_empty(&state.events) and load_int(&state.is_emitting) and now_us() < t_end:
            relax()
