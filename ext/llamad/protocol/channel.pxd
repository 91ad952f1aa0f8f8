# The channel between the front and one engine, in shared memory: a ring each way, an eventfd that wakes the reader of
# each, and the engine's board. The front writes commands and reads events, the engine the reverse.
from libc.stdint cimport int32_t, int64_t, uint64_t

from llamad.protocol.board cimport Board, SlotView
from llamad.protocol.ring cimport Cursors, Ring

# The beginning of the shared memory. The engine fills it before the front maps it.
ctypedef struct ChannelHead:
    uint64_t magic
    uint64_t command_bytes
    uint64_t event_bytes
    int32_t n_slots            # number of slots of the engine
    int32_t n_ctx              # tokens of one slot
    int32_t n_ubatch           # tokens of one graph
    int32_t has_device         # a device computes, so that the sides may spin for each other (wakeup.pyx)
    Cursors commands
    Cursors events
    int32_t is_gathering       # the front is about to send more tasks
    int32_t is_emitting        # the engine is about to send events
    int64_t t_wake_us          # time of the oldest wake-up that the front has not handled; 0: none

# The view of one side.
ctypedef struct Channel:
    ChannelHead *head
    Ring commands
    Ring events
    Board *board
    SlotView *slots
    int command_fd
    int event_fd
    int32_t n_slots            # copies that the other side cannot change
    int32_t n_ctx
    int32_t n_ubatch
    int32_t has_device

cdef class Link:
    """Owns one side's mapping of a channel, and its copies of the descriptors."""

    cdef Channel channel
    cdef uint64_t n_mapped
    cdef int _map(self, int memory_fd, uint64_t n_bytes) except -1
    cdef void _attach(self, const ChannelHead *shape) noexcept
