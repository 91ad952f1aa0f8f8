"""Owns a listening socket that speaks TLS: accepts by itself, so that handshakes have places like connections.
Runs on the event loop; a loop's own server would show a client only after its handshake, however many wait in it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from llamad.http.request import address_of

if TYPE_CHECKING:
    from llamad.http.connection import Connection
    from llamad.http.places import Places

log = logging.getLogger("llamad.http")

# Clients that are accepted before the loop turns to others.
TURN_MAX = 64
# After running out of descriptors.
PAUSE_SECONDS = 1.0
SHUTDOWN_SECONDS = 5.0


class Handshake:
    """A client that is not a connection yet. Its place becomes the connection's."""

    waits = True
    has_unsent = False

    def __init__(self) -> None:
        self.since = monotonic()
        self.task: asyncio.Task[bool] | None = None

    def give_way(self) -> None:
        if self.task is not None:
            self.task.cancel()


class TlsListener:
    """`make` makes the protocol of a connection; a handshake may take `timeout` seconds; `is_shared` knows the trusted
    proxies."""

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        make: Callable[[], Connection],
        places: Places,
        timeout: float,
        is_shared: Callable[[object], bool],
    ) -> None:
        self._sock = sock
        self._context = context
        self._make = make
        self._places = places
        self._timeout = timeout
        self._is_shared = is_shared
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[Connection, Handshake] = {}
        self._tasks: set[asyncio.Task[bool]] = set()
        self._is_closed = False
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    def stop_accepting(self) -> None:
        """Handshakes go on."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._sock)
            self._sock.close()

    def close(self) -> None:
        self.stop_accepting()
        for task in self._tasks:
            task.cancel()

    def ended(self, connection: Connection) -> None:
        """A connection is made: it takes a place of its own."""
        handshake = self._handshakes.pop(connection, None)
        if handshake is not None:
            self._places.leave(handshake)

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
            if not self._places.take(handshake, address_of(peer), self._is_shared(peer)):
                sock.close()
                continue
            task = handshake.task = self._loop.create_task(self._shake_hands(handshake, sock))
            self._tasks.add(task)
            task.add_done_callback(partial(self._shaken, handshake, sock))

    def _go_on(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._sock, self._accept)

    def _shaken(self, handshake: Handshake, sock: socket.socket, task: asyncio.Task[bool]) -> None:
        """Also of a task that was cancelled before it began."""
        self._tasks.discard(task)
        self._places.leave(handshake)
        if task.cancelled() or not task.result():
            sock.close()

    async def _shake_hands(self, handshake: Handshake, sock: socket.socket) -> bool:
        """Whether it became a connection."""
        sock.setblocking(False)
        connection = self._make()
        self._handshakes[connection] = handshake
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                sock,
                ssl=self._context,
                ssl_handshake_timeout=self._timeout,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except (OSError, asyncio.CancelledError) as error:  # ssl.SSLError is an OSError
            log.debug("a TLS handshake failed: %r", error)
            self._handshakes.pop(connection, None)
            return False
        return True
