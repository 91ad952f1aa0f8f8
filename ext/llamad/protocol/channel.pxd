# The channel between the front and one engine: a ring each way, and an eventfd that wakes the reader of each.
# Plain data. The front writes commands and reads events, the engine the reverse; nothing here belongs to both.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.protocol.ring cimport Ring

ctypedef struct Channel:
    Ring commands
    Ring events
    int command_fd
    int event_fd
    int32_t n_slots            # what the engine can be asked for
    int32_t n_ctx              # tokens of one slot
    int32_t has_device         # another processor computes: sides may spin for each other (wakeup.pyx)
    int32_t is_gathering       # the front is about to send more tasks
    int32_t is_emitting        # the engine is about to send events
    int64_t t_wake_us          # of the oldest wake-up that the front has not answered; 0: it has answered all

cdef int channel_init(Channel *channel, uint64_t command_bytes, uint64_t event_bytes) noexcept nogil
cdef void channel_free(Channel *channel) noexcept nogil

cdef class Link:
    """Owns a channel. Both sides hold it."""

    cdef Channel channel
