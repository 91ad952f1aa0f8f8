# Owns: the flow control of a connection: pausing reads and writes, and noticing that a client no longer reads.
# Runs on the event loop; it makes no decisions about requests.
import asyncio
import fcntl
import select
import socket
import struct
import sys
import termios

# Bytes of later requests that a client may send during a response; beyond it, reading pauses.
PIPELINE_MAX = 64 * 1024

_HUNG_UP = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
# l_onoff, l_linger: with these, close() discards the send queue and sends a reset.
_LINGER_OFF = struct.pack("ii", 1, 0)


cdef class Flow:
    """The flow control of one connection."""

    def __init__(self, transport, high_water: int):
        transport.set_write_buffer_limits(high=high_water)
        self._transport = transport
        self._passed = -1

    def pause_reading(self) -> None:
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def breathe(self) -> None:
        """Give other connections a turn: libuv reads up to 32 times, 8 MB, before it turns to another one."""
        self.pause_reading()
        asyncio.get_running_loop().call_soon(self.resume_reading)

    def settle(self) -> None:
        """Forget all waiting bytes, because the connection is lost."""
        self.settled = self.written
        self.read_paused = False

    def stalled(self, now: float, timeout: float) -> bool:
        """Return whether bytes wait for the client and it has taken none for `timeout` seconds."""
        waiting = self._transport.get_write_buffer_size()
        if waiting == 0:
            self.settled = self.written
            return False
        # The kernel's own queue counts too: it is large, and accepts more only after a good part of it has left.
        # Without it, a slow client would look like a dead one.
        passed = self.written - waiting - self._in_kernel()
        if passed != self._passed:
            self._passed = passed
            self._since = now
            return False
        return now - self._since >= timeout

    def hung_up(self) -> bool:
        """Return whether the client has closed its side. The loop cannot see that while reading is paused."""
        fd = self._fd()
        if fd < 0:
            return True
        poll = select.poll()
        poll.register(fd, _HUNG_UP)
        return bool(poll.poll(0))

    def end_writing(self) -> None:
        """Tell the client that nothing more comes, once everything written has left."""
        transport = self._transport
        if transport.can_write_eof() and not transport.is_closing():  # TLS cannot; its responses have Connection: close
            try:
                transport.write_eof()
            except OSError:
                pass  # the client is gone, and the loop is about to report that

    def reset(self) -> None:
        """Close so that the client sees an error and the kernel drops what it still holds for it."""
        try:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
        except (AttributeError, OSError, RuntimeError):
            pass  # already closed
        self._transport.abort()

    def _in_kernel(self) -> int:
        """Return the bytes that the client's kernel has not acknowledged yet; 0 if that is unknown."""
        try:
            queue_size = fcntl.ioctl(self._fd(), termios.TIOCOUTQ, b"\0\0\0\0")
        except (OSError, ValueError):
            return 0
        return int.from_bytes(queue_size, sys.byteorder)

    def _fd(self) -> int:
        """Return the file descriptor, or -1 if the connection is closed."""
        sock = self._transport.get_extra_info("socket")
        return -1 if sock is None else int(sock.fileno())
