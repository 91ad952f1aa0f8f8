"""The HTTP server: it owns the listening sockets, the set of connections and the one timer for all of them.
Runs on the event loop, between connections and the application; lets no exception escape."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from time import monotonic

from llamad.base.memory_budget import Budget
from llamad.http import response_head, unix_socket
from llamad.http.app import App
from llamad.http.binding import Bound, bind
from llamad.http.connection import Connection
from llamad.http.connection_table import ConnectionTable
from llamad.http.cors import Cors
from llamad.http.errors import HttpError
from llamad.http.exchange import Exchange
from llamad.http.head_cache import Heads
from llamad.http.limits import Limits
from llamad.http.proxies import Proxies
from llamad.http.request import Request, RequestIds, Response
from llamad.http.tls_listener import TlsListener

log = logging.getLogger("llamad.http")

# So many connections above the limit may stay until the client has read its 503; further ones are closed at once.
REFUSED_MAX = 128
SWEEP_SLICE = 500
NO_CONNECTION = "The server has no free connection (--connections-max); try again in a second."
SWEEP_PAUSE_SECONDS = 0.005
# The most connections that close in one turn of the event loop. Ten thousand would hold it for 60 ms.
CLOSE_SLICE = 256


class HttpServer:
    """Call listen() first. When the drain begins, call end_keep_alive(), or stop_accepting() if the sockets are
    inherited. When it ends, call stop_listening(), then close()."""

    def __init__(
        self,
        app: App,
        limits: Limits,
        cors: Cors,
        access_log: Callable[[Exchange, float], None] | None,
        ssl_context: ssl.SSLContext | None = None,
        log_quiet: bool = True,
        proxies: Proxies | None = None,
        budget: Budget | None = None,
    ) -> None:
        """`access_log` gets each finished exchange and its duration in seconds; with `log_quiet` also successful
        requests to quiet routes. `proxies` are the trusted proxies. `budget` limits the memory that requests hold; the
        application counts in it, too."""
        self.app = app
        self.limits = limits
        self.cors = cors
        self.proxies = proxies
        self.ids = RequestIds()
        self.heads = Heads(cors)
        self.budget = budget or Budget(0)
        self.budget.resize(limits.budget_bytes)
        self.closing = False  # connections close after their current response
        self.draining = False  # no new connections are accepted
        self.places = ConnectionTable(limits.connections_max, limits.address_connections_max)
        self.connections: set[Connection] = set()
        self.n_active = 0  # exchanges in flight
        self.n_refused = 0  # connections rejected since the start
        self._refused: set[Connection] = set()
        self._n_closing = 0  # connections whose clients left in this turn
        self._left: list[Connection] = []  # those that a later turn closes
        self._access_log = access_log
        self._log_quiet = log_quiet
        self._ssl = ssl_context
        self._servers: list[asyncio.Server] = []
        self._tls_listeners: list[TlsListener] = []
        self._unix_files: list[unix_socket.SocketFile] = []
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_lost: asyncio.Future[None] | None = None
        self._busy: Response | None = None

    @property
    def n_connections(self) -> int:
        """Return the number of connections, including those in their TLS handshake."""
        return len(self.places)

    # Start and stop.

    async def listen(self, hosts: Sequence[str], port: int, bound: Bound | None = None) -> str:
        """Serve the addresses, and Unix sockets if a host is a path; return them as URLs. `bound` has the sockets if
        they listen already.

        Raises OSError with a message for the operator.
        """
        loop = asyncio.get_running_loop()
        tls = self._ssl
        if bound is None:
            bound = bind(hosts, port)
        self.cors.reach = max(self.cors.reach, bound.reach)
        self._unix_files += bound.files
        for sock in bound.sockets:
            if tls is None:
                # create_unix_server() would remove the socket's file at the end, even if it is another process's.
                server = await loop.create_server(self._make, sock=sock, backlog=bound.backlog)
                self._servers.append(server)
            else:
                timeout = self.limits.header_timeout
                self._tls_listeners.append(
                    TlsListener(sock, tls, self._make, self.places, timeout, self._is_shared)
                )
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)
        return bound.urls("https" if tls else "http")

    def _is_shared(self, peer: object) -> bool:
        return self.proxies is not None and self.proxies.meet(peer) is not None

    def _make(self) -> Connection:
        return Connection(self)

    # What a reload changes. Open connections and running requests go on as they began.

    def set_limits(self, limits: Limits) -> None:
        self.limits = limits
        self.budget.resize(limits.budget_bytes)
        self.places.resize(limits.connections_max, limits.address_connections_max)
        for listener in self._tls_listeners:
            listener.timeout = limits.header_timeout

    def set_tls(self, context: ssl.SSLContext) -> None:
        """Use another context for future handshakes; the server must have TLS already."""
        self._ssl = context
        for listener in self._tls_listeners:
            listener.context = context

    def set_cors(self, cors: Cors) -> None:
        """Use other CORS rules for future connections."""
        cors.reach = self.cors.reach
        self.cors = cors
        self.heads = Heads(cors)

    def log_to(self, access_log: Callable[[Exchange, float], None] | None, quiet: bool) -> None:
        self._access_log = access_log
        self._log_quiet = quiet

    def end_keep_alive(self) -> None:
        """Make each response the last one of its connection, and say so in its headers, so that proxies send their next
        request elsewhere. New connections are still accepted and treated the same."""
        self.closing = True

    def stop_accepting(self) -> None:
        """Accept no more connections: they wait for the next process that inherits the sockets. Each open connection
        is served for one more request."""
        self.closing = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        for listener in self._tls_listeners:
            listener.stop_accepting()

    def stop_listening(self) -> None:
        """Accept no more connections, and close idle ones."""
        self.stop_accepting()
        self.draining = True
        for listener in self._tls_listeners:
            listener.close()
        self._tls_listeners.clear()
        for file in self._unix_files:
            file.remove()
        self._unix_files.clear()
        for connection in list(self.connections):
            connection.drain()

    async def close(self, grace: float) -> None:
        """Abort the requests in flight and close; bytes that are already written have `grace` seconds to be sent."""
        self.stop_listening()
        for connection in list(self.connections | self._refused):
            connection.shut()
        await self._wait_all_lost(grace)
        for connection in list(self.connections | self._refused):
            connection.abort()
        await self._wait_all_lost(1.0)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    async def _wait_all_lost(self, seconds: float) -> None:
        if not (self.connections or self._refused):
            return
        self._all_lost = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._all_lost], timeout=seconds)
        self._all_lost = None

    def _sweep(self) -> None:
        """Check all connections for timeouts. One timer for all is cheaper than one for each."""
        self._sweep_some([*self.connections, *self._refused])

    def _sweep_some(self, left: list[Connection]) -> None:
        """Check one slice of the connections at a time, so that ten thousand of them do not delay a stream."""
        now = monotonic()
        for connection in left[-SWEEP_SLICE:]:
            if now >= connection.deadline or connection.may_be_due:
                try:
                    connection.sweep(now)
                except Exception:
                    log.exception("a connection failed inside the server")
                    connection.abort()
        del left[-SWEEP_SLICE:]
        loop = asyncio.get_running_loop()
        if left:
            self._sweep_timer = loop.call_later(SWEEP_PAUSE_SECONDS, self._sweep_some, left)
        else:
            self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)

    # Called by connections.

    def admit(self, connection: Connection) -> bytes | None:
        """Admit a new connection and return None, or return the response to send before it is closed."""
        if self.draining:
            self._refused.add(connection)
            return b""
        if self.places.take(connection, connection.address, connection.is_shared):
            self.connections.add(connection)
            return None
        self.n_refused += 1
        self._refused.add(connection)
        return self._busy_bytes()

    def reseat(self, connection: Connection) -> bytes | None:
        """Admit a connection again, after a proxy has said whose it is; returns what admit() returns."""
        self.connections.discard(connection)
        self.places.leave(connection)
        return self.admit(connection)

    def can_linger(self) -> bool:
        return not self.draining and len(self._refused) <= REFUSED_MAX

    def closes_later(self, connection: Connection) -> bool:
        """Return whether a connection whose client has left stays open for now, because many have left at once."""
        if self._n_closing == 0:
            asyncio.get_running_loop().call_soon(self._close_some)
        self._n_closing += 1
        if self._n_closing <= CLOSE_SLICE:
            return False
        self.places.leave(connection)
        self._left.append(connection)
        return True

    def _close_some(self) -> None:
        for connection in self._left[-CLOSE_SLICE:]:
            connection.abort()
        del self._left[-CLOSE_SLICE:]
        self._n_closing = CLOSE_SLICE if self._left else 0
        if self._left:
            asyncio.get_running_loop().call_later(SWEEP_PAUSE_SECONDS, self._close_some)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.places.leave(connection)
        self._refused.discard(connection)
        if self._all_lost is not None and not (self.connections or self._refused or self._all_lost.done()):
            self._all_lost.set_result(None)

    def _busy_bytes(self) -> bytes:
        """Return a 503 without a request; this must be cheap, because thousands may connect."""
        if self._busy is None:
            self._busy = self.error(503, NO_CONNECTION)
            self._busy.headers = (*self._busy.headers, ("Retry-After", "1"))
        return response_head.whole(self._busy, self.ids.make())

    def refusal(self, error: HttpError, request: Request) -> Response:
        """Return the response to a request that cannot be read."""
        response = self.error(error.status, error.message, request)
        if error.status == 503:
            response.headers = (*response.headers, ("Retry-After", "1"))
        return response

    def judge(self, request: Request) -> Response | None:
        """Pass the head to the application, and return its response, if any. A preflight request never reaches the
        application, because browsers send no key with it."""
        if request.method == "OPTIONS" and self.cors.is_preflight(request):
            return self.cors.preflight(request)
        try:
            return self.app.on_head(request)
        except HttpError as error:
            return self.error(error.status, error.message, request)
        except Exception:
            log.exception("request %s: on_head failed", request.request_id)
            return self.error(500, "Internal server error; see the server's log.", request)

    def body_max(self, request: Request) -> int:
        try:
            return self.app.body_max(request) or self.limits.body_max_bytes
        except HttpError:
            raise
        except Exception:
            log.exception("request %s: body_max failed", request.request_id)
            raise HttpError(500, "Internal server error; see the server's log.") from None

    def body_buffer(self, request: Request, length: int) -> memoryview | Response | None:
        try:
            buffer = self.app.body_buffer(request, length)
            if isinstance(buffer, memoryview) and (buffer.readonly or buffer.nbytes != length):
                raise ValueError(f"a buffer of {buffer.nbytes} bytes for a body of {length}")
        except HttpError:
            raise
        except Exception:
            log.exception("request %s: body_buffer failed", request.request_id)
            raise HttpError(500, "Internal server error; see the server's log.") from None
        return buffer

    def error(self, status: int, message: str, request: Request | None = None) -> Response:
        """Return the application's error response, or a plain one if that fails."""
        try:
            response = self.app.error(status, message, request)
            response_head.check(response)
        except Exception:
            log.exception("the application failed to make an error with status %d", status)
            return Response(status, b'{"error":{"code":%d,"message":"","type":"server_error"}}' % status)
        return response

    def done(self, exchange: Exchange, seconds: float) -> None:
        self.n_active -= 1
        try:
            self.app.on_done(exchange, seconds)
        except Exception:
            log.exception("request %s: on_done failed", exchange.request.request_id)
        if self._access_log is not None and (self._log_quiet or not _is_quiet(exchange)):
            try:
                self._access_log(exchange, seconds)
            except Exception:
                log.exception("request %s: the access log failed", exchange.request.request_id)


def _is_quiet(exchange: Exchange) -> bool:
    route = exchange.request.route
    return route is not None and route.quiet and exchange.status < 400
