"""Owns the bytes between a client's socket and OpenSSL: which records came, and what is encrypted but not sent yet.

A thread computes the handshake with it, then the event loop alone uses it. It must give OpenSSL a bounded number of
bytes at a time: reading from the socket by itself, OpenSSL would not return while records without data keep coming.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

RECORD_MAX = 16 * 1024
# A whole record with its header and its tag.
RECEIVE_BYTES = RECORD_MAX + 512
# Records without data, such as changes of keys, that a client may send: so many, and one more for each 16 with data.
# The usual client changes its keys once in millions of records.
EMPTY_RECORDS_MAX = 64
DATA_RECORDS_PER_EMPTY = 16
_HEADER_BYTES = 5


class TooManyEmptyRecords(OSError):
    """The client makes the server compute, and sends nothing."""


class TlsRecords:
    """TLS over a non-blocking socket. Errors are OSError; ssl.SSLError is one."""

    def __init__(self, context: ssl.SSLContext, sock: socket.socket) -> None:
        self.sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._wire = memoryview(b"")  # encrypted, not sent yet
        self._header = b""  # of a record of which only this has come
        self._n_skip = 0  # bytes of the last record that have not come
        self._n_records = 0  # since the handshake
        self._n_data_records = 0

    def do_handshake(self) -> None:
        """Take what the client has sent of its handshake. Raises SSLWantReadError or SSLWantWriteError if the socket
        must be awaited before the next call."""
        if not self.flush():
            raise ssl.SSLWantWriteError
        if not self._receive():
            raise ConnectionAbortedError
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if not self.flush():
                raise ssl.SSLWantWriteError from None
            raise
        except ssl.SSLError:
            self.flush()  # the alert that says why
            raise
        self.flush()
        self._n_records = 0

    def receive(self) -> int:
        """Receive up to RECEIVE_BYTES, for read(), when all that came before was read. Returns their number, 0 if the
        client has closed its side. Raises SSLWantReadError if there are none, and TooManyEmptyRecords."""
        # The last record may not be whole.
        n_empty = self._n_records - self._n_data_records - 1
        if n_empty > EMPTY_RECORDS_MAX + self._n_data_records // DATA_RECORDS_PER_EMPTY:
            raise TooManyEmptyRecords
        return self._receive()

    def _receive(self) -> int:
        try:
            data = self.sock.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            raise ssl.SSLWantReadError from None
        self._count(data)
        self._incoming.write(data)
        return len(data)

    def _count(self, data: bytes) -> None:
        """Count the records that begin in the data."""
        at, n = self._n_skip, len(data)
        while at < n:
            if self._header:
                missing = _HEADER_BYTES - len(self._header)
                header, at = self._header + data[at : at + missing], at + missing
            else:
                header, at = data[at : at + _HEADER_BYTES], at + _HEADER_BYTES
            if len(header) < _HEADER_BYTES:
                self._header = header
                at = n
                break
            self._header = b""
            self._n_records += 1
            at += int.from_bytes(header[3:5])
        self._n_skip = at - n

    @property
    def has_input(self) -> bool:
        """Whether OpenSSL has not seen all bytes that were received."""
        return self._incoming.pending > 0

    def read(self) -> bytes:
        """Return the data of the next record that has any; b"" if the client has announced its end. Raises
        SSLWantReadError after the last record."""
        try:
            data = self._tls.read(RECORD_MAX)
        except ssl.SSLZeroReturnError:
            return b""
        self._n_data_records += 1
        return data

    def encrypt(self, data: Any) -> None:
        """Encrypt data, which flush() sends."""
        self._tls.write(data)

    @property
    def n_unsent(self) -> int:
        return len(self._wire) + self._outgoing.pending

    def flush(self) -> bool:
        """Send what is encrypted, as much as the socket takes. True: nothing is left."""
        if self._outgoing.pending:
            more = self._outgoing.read()
            self._wire = memoryview(bytes(self._wire) + more if self._wire else more)
        while self._wire:
            try:
                n = self.sock.send(self._wire)
            except (BlockingIOError, InterruptedError):
                return False
            self._wire = self._wire[n:]
        return True

    def announce_end(self) -> None:
        """Send close_notify, and do not wait for the client's."""
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass
        self.flush()
