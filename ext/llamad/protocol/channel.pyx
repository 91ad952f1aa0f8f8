# Owns: a channel's memory and descriptors, for as long as one side holds it.
from libc.stdint cimport uint64_t
from libc.string cimport memset

from llamad.base.system cimport close, wake_open
from llamad.protocol.ring cimport ring_free, ring_init

cdef enum:
    EVENT_RING_BYTES = 4 << 20
    COMMAND_RING_BYTES = 4 << 20
    # What a command may carry beside its prompt: stop strings, biases, breakers.
    COMMAND_EXTRA_BYTES = 4 << 20


cdef int channel_init(Channel *channel, uint64_t command_bytes, uint64_t event_bytes) noexcept nogil:
    """0, -1 without memory, -2 without descriptors. channel_free() takes back whatever there is."""
    memset(channel, 0, sizeof(Channel))
    channel.command_fd = channel.event_fd = -1
    if ring_init(&channel.commands, command_bytes) < 0 or ring_init(&channel.events, event_bytes) < 0:
        return -1
    channel.command_fd = wake_open()
    channel.event_fd = wake_open()
    return 0 if channel.command_fd >= 0 and channel.event_fd >= 0 else -2


cdef void channel_free(Channel *channel) noexcept nogil:
    ring_free(&channel.commands)
    ring_free(&channel.events)
    if channel.command_fd >= 0:
        close(channel.command_fd)
    if channel.event_fd >= 0:
        close(channel.event_fd)


cdef class Link:
    def __cinit__(self, *, n_slots: int, n_ctx: int, has_device: bool) -> None:
        cdef uint64_t n_command = 4 * (<uint64_t>n_ctx * 4 + COMMAND_EXTRA_BYTES) + COMMAND_RING_BYTES
        cdef int code = channel_init(&self.channel, n_command, EVENT_RING_BYTES)
        if code == -1:
            raise MemoryError()
        if code < 0:
            raise OSError("eventfd: no descriptors left")
        self.channel.n_slots = n_slots
        self.channel.n_ctx = n_ctx
        self.channel.has_device = has_device

    def __dealloc__(self) -> None:
        channel_free(&self.channel)
