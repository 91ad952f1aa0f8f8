# Owns: a channel's memory and descriptors. The engine lays the memory out (Link with a shape) and seals its size, then the
# front maps it. Whatever the engine writes later, the front reads where the rings lie once, here.
import os

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from llamad.base.system cimport close, copy_once, dup_cloexec, wake_open
from llamad.protocol.board cimport Board, SlotView
from llamad.protocol.ring cimport ring_attach

from llamad.base import sealed_memory

cdef enum:
    EVENT_RING_BYTES = 4 << 20
    COMMAND_RING_BYTES = 4 << 20
    # What a command may carry beside its prompt: stop strings, biases, breakers.
    COMMAND_EXTRA_BYTES = 4 << 20
    PAGE = 65536             # of any machine
    SLOTS_MAX = 65536

cdef uint64_t MAGIC = 0x31303064616d616c
cdef uint64_t RING_BYTES_MAX = <uint64_t>1 << 40


class Descriptors:
    """The descriptors of a channel: the front makes them, both sides open a Link on them."""

    def __init__(self, memory: int, command: int, event: int) -> None:
        self.memory = memory
        self.command = command
        self.event = event

    @classmethod
    def create(cls) -> "Descriptors":
        """Create the descriptors of a channel without memory. Raises OSError if the system has no more."""
        made = cls(-1, -1, -1)
        try:
            made.memory = sealed_memory.create("llamad-channel")
            made.command = _eventfd()
            made.event = _eventfd()
        except OSError:
            made.close()
            raise
        return made

    def close(self) -> None:
        for fd in (self.memory, self.command, self.event):
            if fd >= 0:
                os.close(fd)
        self.memory = self.command = self.event = -1


def _eventfd() -> int:
    cdef int fd = wake_open()
    if fd < 0:
        raise OSError("eventfd: no descriptors left")
    return fd


cdef uint64_t _ring_bytes(uint64_t n_min):
    cdef uint64_t n = PAGE
    while n < n_min:
        n *= 2
    return n


cdef uint64_t _pages(uint64_t n):
    return (n + PAGE - 1) // PAGE * PAGE


cdef uint64_t _head_bytes(uint64_t n_slots):
    """Return the size of the head and the board after it."""
    return _pages(_pages(sizeof(ChannelHead)) + sizeof(Board) + n_slots * sizeof(SlotView))


cdef bint _is_ring(uint64_t n_bytes):
    return PAGE <= n_bytes <= RING_BYTES_MAX and n_bytes & (n_bytes - 1) == 0


cdef int _check(const ChannelHead *shape, uint64_t n_bytes) except -1:
    """Raise OSError unless memory of n_bytes can have this shape."""
    is_laid_out = (shape.magic == MAGIC and 0 < shape.n_slots <= SLOTS_MAX and shape.n_ctx > 0
                   and _is_ring(shape.command_bytes) and _is_ring(shape.event_bytes)
                   and _head_bytes(shape.n_slots) + shape.command_bytes + shape.event_bytes == n_bytes)
    if not is_laid_out:
        raise OSError("the channel's memory is not laid out as this program has it")
    return 0


cdef class Link:
    def __cinit__(self, memory: int, command: int, event: int, *, n_slots: int = 0, n_ctx: int = 0, n_ubatch: int = 0,
                  has_device: bool = False) -> None:
        """With a shape, lay out the memory, which the engine does. Without one, map the memory that the engine has laid
        out, which the front does. Raises OSError."""
        cdef uint64_t n_command, n_event = EVENT_RING_BYTES, n_head
        cdef int fd = memory
        cdef ChannelHead shape
        memset(&self.channel, 0, sizeof(Channel))
        self.channel.command_fd = dup_cloexec(command)
        self.channel.event_fd = dup_cloexec(event)
        if self.channel.command_fd < 0 or self.channel.event_fd < 0:
            raise OSError("no descriptors left")
        if n_slots:
            n_command = _ring_bytes(4 * (<uint64_t>n_ctx * 4 + COMMAND_EXTRA_BYTES) + COMMAND_RING_BYTES)
            n_head = _head_bytes(n_slots)
            os.ftruncate(fd, n_head + n_command + n_event)
            sealed_memory.seal(fd)
            self._map(fd, n_head + n_command + n_event)
            self.channel.head.command_bytes = n_command
            self.channel.head.event_bytes = n_event
            self.channel.head.n_slots = n_slots
            self.channel.head.n_ctx = n_ctx
            self.channel.head.n_ubatch = n_ubatch
            self.channel.head.has_device = has_device
            self.channel.head.magic = MAGIC
        else:
            n_bytes = sealed_memory.checked_size(fd)
            if n_bytes < _head_bytes(0):
                raise OSError("the channel has no memory")
            self._map(fd, n_bytes)
        copy_once(&shape, self.channel.head, sizeof(ChannelHead))
        _check(&shape, self.n_mapped)
        self._attach(&shape)

    cdef int _map(self, int memory_fd, uint64_t n_bytes) except -1:
        cdef void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0)
        if memory == MAP_FAILED:
            raise OSError("shared memory for the channel cannot be mapped")
        self.channel.head = <ChannelHead *>memory
        self.n_mapped = n_bytes
        return 0

    cdef void _attach(self, const ChannelHead *shape) noexcept:
        """Set the addresses of the rings and the board by `shape`, which is this side's copy of the head."""
        cdef Channel *channel = &self.channel
        cdef ChannelHead *head = channel.head
        cdef uint8_t *memory = <uint8_t *>head
        cdef uint64_t n_head = _head_bytes(shape.n_slots)
        channel.n_slots = shape.n_slots
        channel.n_ctx = shape.n_ctx
        channel.n_ubatch = shape.n_ubatch
        channel.has_device = shape.has_device
        channel.board = <Board *>(memory + _pages(sizeof(ChannelHead)))
        channel.slots = <SlotView *>(channel.board + 1)
        ring_attach(&channel.commands, &head.commands, memory + n_head, shape.command_bytes)
        ring_attach(&channel.events, &head.events, memory + n_head + shape.command_bytes, shape.event_bytes)

    def __dealloc__(self) -> None:
        if self.channel.head != NULL:
            munmap(self.channel.head, self.n_mapped)
        if self.channel.command_fd >= 0:
            close(self.channel.command_fd)
        if self.channel.event_fd >= 0:
            close(self.channel.event_fd)
