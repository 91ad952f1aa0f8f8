"""A TLS connection after its handshake: an asyncio transport over TLS records.

Runs on the event loop. The event loop's own TLS transport would do the handshake again, and on the loop, so records are
read and written here (tls_records.py handles their bytes).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from time import monotonic
from typing import Any

from llamad.http.tls_records import RECEIVE_BYTES, RECORD_MAX, TlsRecords

# How long records are read, and how many are written, before the event loop turns to other connections.
TURN_SECONDS = 0.002
TURN_RECORDS = 16
# How long a client may take to close its side after the server has closed its own.
SHUTDOWN_SECONDS = 5.0
HIGH_WATER = 64 * 1024


class TlsTransport(asyncio.Transport):
    """close() sends everything that was written before, however slow the client is; abort() does not."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, records: TlsRecords, peer: object, protocol: asyncio.Protocol
    ) -> None:
        super().__init__({"peername": peer, "socket": records.sock})
        self._loop = loop
        self._records = records
        self._sock = records.sock
        self._fd = records.sock.fileno()
        self._protocol = protocol
        self._unsent = bytearray()  # not encrypted yet
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._is_reading = False
        self._goes_on = False  # _go_on() is scheduled
        self._has_writer = False
        self._writing_paused = False
        self._closing = False  # nothing more is read, and write() does nothing
        self._is_lost = False
        self._shutdown_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._protocol.connection_made(self)
        self.resume_reading()
        if self._records.n_unsent:
            self._await_writable()

    # The interface of asyncio.Transport.

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._is_reading and not self._closing:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)
            self._go_on_soon()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent) + self._records.n_unsent

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def write(self, data: Any) -> None:
        if self._closing or not len(data):
            return
        with memoryview(data) as view:
            n = 0 if self._unsent else self._send(view)
            if not self._is_lost:
                self._unsent += view[n:]
        n_left = self.get_write_buffer_size()
        if n_left and not self._is_lost:
            self._await_writable()
            if n_left > self._high and not self._writing_paused:
                self._writing_paused = True
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self.get_write_buffer_size():
            self._say_goodbye()

    def abort(self) -> None:
        self._end(None)

    # Called by the event loop.

    def _on_readable(self) -> None:
        end = monotonic() + TURN_SECONDS
        try:
            while self._is_reading:
                if self._records.has_input:
                    n = RECEIVE_BYTES  # the socket may have more
                else:
                    n = self._records.receive()
                if not n or not self._read_records(end):
                    self._on_end()
                elif n < RECEIVE_BYTES or monotonic() >= end:
                    break
        except ssl.SSLWantReadError:
            pass
        except OSError as error:
            self._end(error)
            return
        if self._is_reading:
            self._go_on_soon()

    def _read_records(self, end: float) -> bool:
        """Pass received data to the protocol. Return False if the client has closed its side. Raises OSError."""
        while self._is_reading and self._records.has_input:
            try:
                data = self._records.read()
            except ssl.SSLWantReadError:  # only a part of a record is left
                break
            if not data:
                return False
            self._protocol.data_received(data)
            if monotonic() >= end:
                break
        if not self._is_lost and not self._records.flush():  # OpenSSL's response to a key update
            self._await_writable()
        return True

    def _on_end(self) -> None:
        self._protocol.eof_received()
        self.close()

    def _go_on_soon(self) -> None:
        """Read again soon if received bytes are left: the socket does not report them again."""
        if self._records.has_input and not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._goes_on = False
        if self._is_reading:
            self._on_readable()

    def _on_writable(self) -> None:
        with memoryview(self._unsent) as view:
            n = self._send(view)
        if self._is_lost:
            return
        del self._unsent[:n]
        n_left = self.get_write_buffer_size()
        if not n_left:
            self._has_writer = False
            self._loop.remove_writer(self._fd)
        if self._writing_paused and n_left <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        is_all_sent = not self.get_write_buffer_size()
        if self._closing and is_all_sent and not self._is_lost and self._shutdown_timer is None:
            self._say_goodbye()

    def _on_drained(self) -> None:
        """Wait until the client closes its side, so that the kernel does not reset the connection while it sends."""
        try:
            if self._sock.recv(TURN_RECORDS * RECORD_MAX):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._end(None)

    # Sending and closing.

    def _await_writable(self) -> None:
        if not self._has_writer:
            self._has_writer = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _send(self, view: memoryview) -> int:
        """Encrypt and send; return how many bytes were encrypted. At most TURN_RECORDS are encrypted, so that a slow
        client cannot make the server encrypt megabytes in one turn."""
        n = 0
        try:
            if not self._records.flush():
                return 0
            end = min(len(view), TURN_RECORDS * RECORD_MAX)
            while n < end:
                with view[n : min(end, n + RECORD_MAX)] as piece:
                    self._records.encrypt(piece)
                    n += len(piece)
            self._records.flush()
        except OSError as error:
            self._end(error)
        return n

    def _say_goodbye(self) -> None:
        try:
            self._records.announce_end()
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._end(None)
            return
        self._shutdown_timer = self._loop.call_later(SHUTDOWN_SECONDS, self._end, None)
        self._loop.add_reader(self._fd, self._on_drained)

    def _end(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._closing = True
        self._is_reading = False
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if self._shutdown_timer is not None:
            self._shutdown_timer.cancel()
        self._unsent = bytearray()
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        # The socket stays open until now, because others may have got it from get_extra_info() to reset it.
        self._sock.close()
        self._protocol.connection_lost(error)
