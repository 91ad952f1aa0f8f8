"""Owns a client's TLS connection once its handshake is done: an asyncio transport over a non-blocking SSLSocket.

Runs on the event loop. A loop's own TLS would shake hands again, and on the loop; so records are read and written here.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

RECORD_MAX = 16 * 1024
# Records that are read or written before the loop turns to others.
TURN_RECORDS = 16
# How long a client may take to close its side after ours.
SHUTDOWN_SECONDS = 5.0
HIGH_WATER = 64 * 1024


class TlsTransport(asyncio.Transport):
    """What was written before close() leaves first, however slow the client; abort() does not wait."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket, peer: object, protocol: asyncio.Protocol
    ) -> None:
        super().__init__({"peername": peer, "socket": sock, "ssl_object": sock})
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._protocol = protocol
        self._unsent = bytearray()
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._is_reading = False
        self._has_writer = False
        self._writing_paused = False
        self._closing = False  # no more is read or accepted for writing
        self._is_lost = False
        self._shutdown_timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._protocol.connection_made(self)
        self.resume_reading()

    # The interface of transports.

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

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def write(self, data: Any) -> None:
        if self._closing or not len(data):
            return
        with memoryview(data) as view:
            # Bytes leave in order, and a record that is stuck must be offered again as it was.
            n = 0 if self._unsent else self._send(view)
            if not self._is_lost:
                self._unsent += view[n:]
        if self._unsent:
            self._await_writable()
            if len(self._unsent) > self._high and not self._writing_paused:
                self._writing_paused = True
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._closing:
            return
        self.pause_reading()
        self._closing = True
        if not self._unsent:
            self._say_goodbye()

    def abort(self) -> None:
        self._end(None)

    # Called by the loop.

    def _on_readable(self) -> None:
        for _ in range(TURN_RECORDS):
            try:
                data = self._sock.recv(RECORD_MAX)
            except ssl.SSLWantReadError:
                return
            except ssl.SSLWantWriteError:  # an answer to a change of keys; the next turn tries again
                return
            except OSError as error:
                self._end(error)
                return
            if not data:
                self._protocol.eof_received()
                self.close()
                return
            self._protocol.data_received(data)
            if len(data) < RECORD_MAX or not self._is_reading:
                return

    def _on_writable(self) -> None:
        with memoryview(self._unsent) as view:
            n = self._send(view)
        if self._is_lost:
            return
        del self._unsent[:n]
        if not self._unsent:
            self._has_writer = False
            self._loop.remove_writer(self._fd)
        if self._writing_paused and len(self._unsent) <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._unsent and not self._is_lost and self._shutdown_timer is None:
            self._say_goodbye()

    def _on_drained(self) -> None:
        """After our end: wait for the client's, so that the kernel does not reset what it still sends."""
        try:
            if self._sock.recv(TURN_RECORDS * RECORD_MAX):
                return
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError:
            pass
        self._end(None)

    # Sending and leaving.

    def _await_writable(self) -> None:
        if not self._has_writer:
            self._has_writer = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _send(self, view: memoryview) -> int:
        """How many bytes left."""
        n = 0
        for _ in range(TURN_RECORDS):
            try:
                with view[n:] as rest:
                    n += self._sock.send(rest)
            except ssl.SSLWantWriteError:
                break
            except OSError as error:
                self._end(error)
                break
            if n == len(view):
                break
        return n

    def _say_goodbye(self) -> None:
        try:
            self._sock.unwrap()  # sends close_notify, and does not wait for the client's
        except (OSError, ValueError):
            pass
        try:
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
        # Until now the socket could be asked for, and closed with a reset.
        self._sock.close()
        self._protocol.connection_lost(error)
