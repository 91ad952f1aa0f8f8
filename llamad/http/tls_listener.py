"""A listening socket with TLS. It accepts connections itself, so that handshakes count as connections.

Runs on the event loop, except for the arithmetic of handshakes, which takes milliseconds: threads do that, and clients
take turns. The event loop's own TLS server would do it between two tokens of a stream.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from llamad.base.fair_pool import FairPool
from llamad.http.request import address_of
from llamad.http.tls_records import TlsRecords
from llamad.http.tls_transport import TlsTransport

if TYPE_CHECKING:
    from llamad.http.connection import Connection
    from llamad.http.connection_table import ConnectionTable

log = logging.getLogger("llamad.http")

# The number of clients that are accepted in one turn of the event loop.
TURN_MAX = 64
# How long accepting pauses after an error, such as running out of descriptors.
PAUSE_SECONDS = 1.0
# The other cores are left to the model.
N_THREADS = max(1, min(4, (os.cpu_count() or 1) // 4))


class _Steps:
    """A socket whose handshake threads compute, and which may be closed at any time."""

    def __init__(self, records: TlsRecords) -> None:
        self.records = records
        self.sock = records.sock
        self._lock = threading.Lock()  # held for a moment only
        self._is_running = False
        self._is_closed = False

    def step(self) -> None:
        """Continue the handshake as far as the client's bytes allow; called in a thread. Raises SSLWantReadError if
        more are needed."""
        with self._lock:
            if self._is_closed:
                raise ConnectionAbortedError
            self._is_running = True
        try:
            self.records.do_handshake()
        finally:
            with self._lock:
                self._is_running = False
                if self._is_closed:
                    self.sock.close()

    def close(self) -> None:
        """Close the socket, or let a running step close it when it ends. The step still uses the descriptor, whose
        number another connection could get otherwise."""
        with self._lock:
            self._is_closed = True
            if not self._is_running:
                self.sock.close()


class Handshake:
    """A client in its TLS handshake. Its place in the table becomes that of the connection."""

    waits = True
    has_unsent = False

    def __init__(self) -> None:
        self.since = monotonic()
        self.task: asyncio.Task[None] | None = None

    def give_way(self) -> None:
        if self.task is not None:
            self.task.cancel()


class TlsListener:
    """`make` makes the protocol of a connection, a handshake may take `timeout` seconds, and `is_shared` tells whether
    a peer is a trusted proxy. `context` and `timeout` may be replaced; the next handshakes use the new ones."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        make: Callable[[], Connection],
        places: ConnectionTable,
        timeout: float,
        is_shared: Callable[[object], bool],
    ) -> None:
        self.context = context
        self.timeout = timeout
        self._sock = sock
        self._make = make
        self._places = places
        self._is_shared = is_shared
        self._loop = asyncio.get_running_loop()
        self._pool = FairPool(N_THREADS, "llamad-tls")
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    def stop_accepting(self) -> None:
        """Accept no more connections. Handshakes that have begun go on."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._sock)
            self._sock.close()

    def close(self) -> None:
        self.stop_accepting()
        for task in self._tasks:
            task.cancel()
        self._pool.close()

    def _accept(self) -> None:
        for _ in range(TURN_MAX):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections: %s", error.strerror)
                self._loop.remove_reader(self._sock)
                self._loop.call_later(PAUSE_SECONDS, self._go_on)
                return
            handshake = Handshake()
            address = address_of(peer)
            if not self._places.take(handshake, address, self._is_shared(peer)):
                sock.close()
                continue
            try:
                steps = _Steps(_wrapped(self.context, sock))
            except OSError:  # the client has left already
                sock.close()
                self._places.leave(handshake)
                continue
            task = handshake.task = self._loop.create_task(self._shake_hands(steps, hash(address)))
            self._tasks.add(task)
            task.add_done_callback(partial(self._shaken, handshake, steps, peer))

    def _go_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._sock, self._accept)

    def _shaken(self, handshake: Handshake, steps: _Steps, peer: object, task: asyncio.Task[None]) -> None:
        """Start the connection, or close the socket if the handshake failed or was cancelled."""
        self._tasks.discard(task)
        self._places.leave(handshake)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            log.debug("a TLS handshake failed: %r", error)
            steps.close()
            return
        TlsTransport(self._loop, steps.records, peer, self._make()).start()

    async def _shake_hands(self, steps: _Steps, client: int) -> None:
        async with asyncio.timeout(self.timeout):
            await self._ready(steps.sock, self._loop.add_reader, self._loop.remove_reader)
            while True:
                try:
                    await self._pool.run(client, steps.step)
                    return
                except ssl.SSLWantReadError:
                    await self._ready(steps.sock, self._loop.add_reader, self._loop.remove_reader)
                except ssl.SSLWantWriteError:
                    await self._ready(steps.sock, self._loop.add_writer, self._loop.remove_writer)

    async def _ready(
        self, sock: socket.socket, add: Callable[..., object], remove: Callable[..., object]
    ) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        fd = sock.fileno()
        add(fd, _set, future)
        try:
            await future
        finally:
            remove(fd)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _wrapped(context: ssl.SSLContext, sock: socket.socket) -> TlsRecords:
    """Prepare an accepted socket for its handshake. Raises OSError."""
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return TlsRecords(context, sock)
