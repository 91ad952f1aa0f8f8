# Owns: waking a sleeping side before there is something for it, where a device computes.
#
# Waking a thread on an idle core takes 50 to 100 µs, and what it does first is slow. Both sides know beforehand: the
# front when it parses the first of several requests (client/wakeup.py), the engine's threads when the last logits of a
# step with somebody's first token are on their way. The other side is told, and spins for the short rest (the engine in
# loop.pyx, where it admits each task while the front parses the next). Where the host itself computes, its cores are
# busy with that, and nobody spins.
from libc.stdint cimport int64_t

from llamad.base.system cimport load_int, now_us, relax, store_int, wake_send
from llamad.protocol.ring cimport ring_is_empty

cdef enum:
    EVENTS_US = 200          # the front spins this long at most


cdef void wakeup_engine(Channel *channel) noexcept nogil:
    """Wake the engine, because the front is about to send tasks; Port.wake() follows the last. For the front."""
    if channel.has_device:
        store_int(&channel.head.is_gathering, 1)
        wake_send(channel.command_fd)


cdef void wakeup_front(Channel *channel) noexcept nogil:
    """Wake the front, because events will follow soon; emit_wake() follows the last. For the engine and its sampler
    threads, and only if a device computes."""
    store_int(&channel.head.is_emitting, 1)
    wake_send(channel.event_fd)


cdef void wakeup_await_events(Channel *channel) noexcept nogil:
    """Wait until there is an event or no more are expected, for a short time at most. For the front."""
    cdef int64_t t_end
    if load_int(&channel.head.is_emitting):
        t_end = now_us() + EVENTS_US
        while ring_is_empty(&channel.events) and load_int(&channel.head.is_emitting) and now_us() < t_end:
            relax()
