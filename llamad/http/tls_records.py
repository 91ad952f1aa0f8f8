"""Moves bytes between a client's socket and OpenSSL: counts the records that arrive, and keeps unsent encrypted bytes.

A thread computes the handshake with it; then only the event loop uses it. It must give OpenSSL a bounded number of
bytes at a time: if OpenSSL read from the socket itself, it would not return while records without data keep coming.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

RECORD_MAX = 16 * 1024
# Room for a whole record with its header and its tag.
RECEIVE_BYTES = RECORD_MAX + 512
# How many records without data, such as key updates, a client may send, plus one more for each 16 records with data.
# Normal clients update their keys once in millions of records.
EMPTY_RECORDS_MAX = 64
DATA_RECORDS_PER_EMPTY = 16
_HEADER_BYTES = 5


class TooManyEmptyRecords(OSError):
    """The client makes the server compute, but sends no data."""


class TlsRecords:
    """TLS over a non-blocking socket. Errors are OSError; ssl.SSLError is one."""

    def __init__(self, context: ssl.SSLContext, sock: socket.socket) -> None:
        self.sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._wire = memoryview(b"")  # encrypted bytes that are not sent yet
        self._header = b""  # the part of a record's header that has arrived, if it is incomplete
        self._n_skip = 0  # bytes of the last record that have not arrived
        self._n_records = 0  # since the handshake
        self._n_data_records = 0

    def do_handshake(self) -> None:
        """Process what the client has sent of its handshake. Raises SSLWantReadError or SSLWantWriteError if the caller
        must wait for the socket before the next call."""
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
            self.flush()  # sends the alert that says why
            raise
        self.flush()
        self._n_records = 0

    def receive(self) -> int:
        """Receive up to RECEIVE_BYTES for read(); call it when everything before was read. Return the number of bytes,
        or 0 if the client has closed its side. Raises SSLWantReadError if there are none, and TooManyEmptyRecords."""
        # The last record may be incomplete.
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
        """Return whether OpenSSL has not yet read all received bytes."""
        return self._incoming.pending > 0

    def read(self) -> bytes:
        """Return the data of the next record that has any, or b"" if the client has closed its side. Raises
        SSLWantReadError if no whole record is left."""
        try:
            data = self._tls.read(RECORD_MAX)
        except ssl.SSLZeroReturnError:
            return b""
        self._n_data_records += 1
        return data

    def encrypt(self, data: Any) -> None:
        """Encrypt data; flush() sends it."""
        self._tls.write(data)

    @property
    def n_unsent(self) -> int:
        return len(self._wire) + self._outgoing.pending

    def flush(self) -> bool:
        """Send as much of the encrypted bytes as the socket takes. Return whether nothing is left."""
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
        """Send close_notify without waiting for the client's."""
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass
        self.flush()
