# Owns: a channel's memory and descriptors. The engine lays the memory out (Link with a shape), then the front maps it.
import os

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from llamad.base.system cimport close, dup_cloexec, wake_open
from llamad.protocol.board cimport Board, SlotView
from llamad.protocol.ring cimport ring_attach

cdef enum:
    EVENT_RING_BYTES = 4 << 20
    COMMAND_RING_BYTES = 4 << 20
    # What a command may carry beside its prompt: stop strings, biases, breakers.
    COMMAND_EXTRA_BYTES = 4 << 20
    PAGE = 65536             # of any machine

cdef uint64_t MAGIC = 0x31303064616d616c


class Descriptors:
    """The descriptors of a channel: the front makes them, both sides open a Link on them."""

    def __init__(self, memory: int, command: int, event: int) -> None:
        self.memory = memory
        self.command = command
        self.event = event

    @classmethod
    def create(cls) -> "Descriptors":
        """Of a channel without memory yet. Raises OSError where the system has no more."""
        made = cls(-1, -1, -1)
        try:
            made.memory = os.memfd_create("llamad-channel", os.MFD_CLOEXEC)
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
    """The head and the board behind it."""
    return _pages(_pages(sizeof(ChannelHead)) + sizeof(Board) + n_slots * sizeof(SlotView))


cdef class Link:
    def __cinit__(self, memory: int, command: int, event: int, *, n_slots: int = 0, n_ctx: int = 0, n_ubatch: int = 0,
                  has_device: bool = False) -> None:
        """With a shape: lays out the memory, as the engine does. Without: maps what is laid out, as the front does.
        Raises OSError."""
        cdef uint64_t n_command, n_event = EVENT_RING_BYTES, n_head
        cdef int fd = memory
        memset(&self.channel, 0, sizeof(Channel))
        self.channel.command_fd = dup_cloexec(command)
        self.channel.event_fd = dup_cloexec(event)
        if self.channel.command_fd < 0 or self.channel.event_fd < 0:
            raise OSError("no descriptors left")
        if n_slots:
            n_command = _ring_bytes(4 * (<uint64_t>n_ctx * 4 + COMMAND_EXTRA_BYTES) + COMMAND_RING_BYTES)
            n_head = _head_bytes(n_slots)
            os.ftruncate(fd, n_head + n_command + n_event)
            self._map(fd, n_head + n_command + n_event)
            self.channel.head.command_bytes = n_command
            self.channel.head.event_bytes = n_event
            self.channel.head.n_slots = n_slots
            self.channel.head.n_ctx = n_ctx
            self.channel.head.n_ubatch = n_ubatch
            self.channel.head.has_device = has_device
            self.channel.head.magic = MAGIC
        else:
            n_bytes = os.fstat(fd).st_size
            if n_bytes < _head_bytes(0):
                raise OSError("the channel has no memory")
            self._map(fd, n_bytes)
            self._check(n_bytes)
        self._attach()

    cdef int _map(self, int memory_fd, uint64_t n_bytes) except -1:
        cdef void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0)
        if memory == MAP_FAILED:
            raise OSError("shared memory for the channel cannot be mapped")
        self.channel.head = <ChannelHead *>memory
        self.n_mapped = n_bytes
        return 0

    def _check(self, n_bytes: int) -> None:
        head = self.channel.head
        is_laid_out = (head.magic == MAGIC and head.n_slots > 0 and head.command_bytes <= n_bytes
                       and head.event_bytes <= n_bytes
                       and _head_bytes(head.n_slots) + head.command_bytes + head.event_bytes == n_bytes)
        if not is_laid_out:
            raise OSError("the channel's memory is not laid out as this program has it")

    cdef void _attach(self) noexcept:
        cdef Channel *channel = &self.channel
        cdef ChannelHead *head = channel.head
        cdef uint8_t *memory = <uint8_t *>head
        cdef uint64_t n_head = _head_bytes(head.n_slots)
        channel.n_slots = head.n_slots
        channel.n_ctx = head.n_ctx
        channel.n_ubatch = head.n_ubatch
        channel.has_device = head.has_device
        channel.board = <Board *>(memory + _pages(sizeof(ChannelHead)))
        channel.slots = <SlotView *>(channel.board + 1)
        ring_attach(&channel.commands, &head.commands, memory + n_head, head.command_bytes)
        ring_attach(&channel.events, &head.events, memory + n_head + head.command_bytes, head.event_bytes)

    def __dealloc__(self) -> None:
        if self.channel.head != NULL:
            munmap(self.channel.head, self.n_mapped)
        if self.channel.command_fd >= 0:
            close(self.channel.command_fd)
        if self.channel.event_fd >= 0:
            close(self.channel.event_fd)
