"""Owns one connection: its phases from the first byte of a request to the end of its answer.
Runs on the event loop. No client's bytes and no mistake of the application may raise out of it."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, cast

from llamad.http import wire
from llamad.http.body import ChunkedBody, LengthBody, too_large
from llamad.http.errors import HttpError
from llamad.http.exchange import Exchange
from llamad.http.flow import PIPELINE_MAX, Flow
from llamad.http.head import HeadReader, read_request
from llamad.http.message import Request, Response, peer_name
from llamad.http.phases import ANSWER, BODY, CLOSED, ENDING, HEAD, IDLE, LINGER, SKIP

if TYPE_CHECKING:
    from llamad.http.server import HttpServer

log = logging.getLogger("llamad.http")

# The rest of a refused body up to this size is read past, to keep the connection; else closing is cheaper.
SKIP_MAX = 64 * 1024
# Closing with unread bytes makes the kernel reset the connection, and the reset can overtake the answer.
# So the answer is sent, then reading goes on for this long or until the client closes.
LINGER_SECONDS = 2.0
# A body that comes in pieces of this size comes faster than it can be handled.
BREATHE_BYTES = 128 * 1024
# Requests of one connection that are handled before the loop turns to others.
TURN_MAX = 16


class Connection(asyncio.Protocol):
    """The asyncio face of one client."""

    __slots__ = (
        "_body",
        "_consuming",
        "_head",
        "_peer",
        "_stash",
        "_stash_pos",
        "_transport",
        "deadline",
        "exchange",
        "flow",
        "phase",
        "server",
    )

    _transport: asyncio.Transport
    flow: Flow

    def __init__(self, server: HttpServer) -> None:
        # server lifetime
        self.server = server
        # connection lifetime
        self._peer = ""
        self._head: HeadReader | None = None
        self._stash = b""  # bytes read while they could not be handled, from _stash_pos on
        self._stash_pos = 0
        self._consuming = False  # _consume() is on the stack and will see a changed phase
        self.phase = IDLE
        self.deadline = inf
        # request lifetime
        self.exchange: Exchange | None = None
        self._body: LengthBody | ChunkedBody | None = None

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.flow = Flow(self._transport, self.server.limits.stream_buffer_bytes)
        self.deadline = monotonic() + self.server.limits.keepalive_timeout
        refusal = self.server.admit(self)
        if refusal is None:
            return
        self.write(refusal)
        if self.server.can_linger():
            self._linger()
        else:
            self._close()

    def data_received(self, data: bytes) -> None:
        try:
            if self.phase >= ENDING:
                return
            if self._stash:
                self._put_by(self._stash[self._stash_pos :] + data, 0)
            else:
                self._consume(data, 0)
        except Exception:
            self._give_up()

    def eof_received(self) -> None:
        # A client that closes its side has left: nobody who waits for an answer does that.
        if self._abandon():
            self.flow.reset()
        self.phase = CLOSED

    def connection_lost(self, exc: Exception | None) -> None:
        self._abandon()
        self.phase = CLOSED
        self.deadline = inf
        self.flow.settle()
        self._drop_input()
        self.server.forget(self)

    def pause_writing(self) -> None:
        self.flow.write_paused = True
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        self.flow.write_paused = False
        if self.exchange is not None:
            self.exchange.resume()
        elif self._stash:
            self._go_on_soon()

    # Reading.

    def _consume(self, data: bytes, pos: int) -> None:
        """Run through the phases as far as the bytes reach and answers allow; stash what is left."""
        n = len(data)
        n_heads = 0
        self._consuming = True
        try:
            while pos < n:
                phase = self.phase
                if phase <= HEAD:
                    if self.flow.write_paused or n_heads == TURN_MAX:
                        self._put_by(data, pos)
                        if not self.flow.write_paused:
                            self._go_on_soon()
                        return
                    pos = self._read_head(data, pos)
                    n_heads += 1
                elif phase == ANSWER:
                    self._put_by(data, pos)
                    return
                elif phase < ENDING:
                    pos = self._read_body(data, pos)
                else:
                    break
        except HttpError as error:
            self._refuse(error)
        finally:
            self._consuming = False
        if self.phase == ENDING:
            if pos == n:
                self._close()
            else:
                self._linger()
        self.flow.resume_reading()
        if self.phase == BODY and n >= BREATHE_BYTES:
            self.flow.breathe()

    def _put_by(self, data: bytes, pos: int) -> None:
        """Keep bytes for later. Reading goes on, because only reading shows that the client leaves."""
        self._stash, self._stash_pos = data, pos
        if len(data) - pos > PIPELINE_MAX:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    def _go_on_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Take up stashed bytes again: an answer ended, or the client has read what was sent."""
        if self._stash and self.phase != ANSWER and self.phase < ENDING:
            data, self._stash = self._stash, b""
            try:
                self._consume(data, self._stash_pos)
            except Exception:
                self._give_up()

    def _read_head(self, data: bytes, pos: int) -> int:
        head = self._head
        if head is None:
            head = self._head = HeadReader(self.server.limits.header_max_bytes)
        pos = head.feed(data, pos)
        if head.complete:
            self._on_head(head)
        elif self.phase == IDLE and head.started:
            self.phase = HEAD
            self.deadline = monotonic() + self.server.limits.header_timeout
        return pos

    def _read_body(self, data: bytes, pos: int) -> int:
        body = self._body
        assert body is not None
        pos = body.feed(data, pos)
        if body.done:
            self._body = None
            if self.phase == SKIP:
                self._rest(monotonic())
            else:
                assert self.exchange is not None
                self.exchange.request.body = body.take()
                self._answer(self.exchange)
        return pos

    def _on_head(self, head: HeadReader) -> None:
        """The head is complete: make the exchange, then let the application judge it."""
        server = self.server
        request, length, malformed = read_request(head, server.ids, self._name_peer(), monotonic())
        exchange = self.exchange = Exchange(self, request, head.version() == "1.0", head.keep_alive)
        server.n_active += 1
        head.reset(head.reusable and length == 0)
        if malformed is not None:
            raise HttpError(*malformed)
        if length == 0:
            self.phase = ANSWER
            self.deadline = inf
        else:
            self.phase = BODY
            self.deadline = request.t_start + server.limits.body_timeout
            self._body = LengthBody(length) if length > 0 else None
        self._judge(exchange, length)

    def _judge(self, exchange: Exchange, length: int) -> None:
        """Answer early, or prepare for the body, or without one hand the request on at once."""
        request = exchange.request
        response = self.server.judge(request)
        if response is not None:
            exchange.send(response)
            return
        if length == 0:
            self._answer(exchange)
            return
        limit = self.server.body_max(request)
        if length > limit:
            raise too_large(limit)
        buffer = self.server.body_buffer(request, length if length > 0 else limit)
        if isinstance(buffer, Response):
            exchange.send(buffer)
            return
        if buffer is not None:
            # A body beyond the usual limit may take as long as its size says: the slowest rate stays the same.
            limits = self.server.limits
            self.deadline += limits.body_timeout * (len(buffer) // limits.body_max_bytes)
        if length < 0:
            self._body = ChunkedBody(limit, buffer)
        elif buffer is not None:
            assert isinstance(self._body, LengthBody)
            self._body.buffer = buffer
        if "expect" in request.headers and not exchange.http10:
            self.write(wire.CONTINUE)

    # Answering.

    def write(self, data: bytes | memoryview) -> None:
        self.flow.written += len(data)
        self._transport.write(data)

    def writelines(self, pieces: tuple[bytes | memoryview, ...]) -> None:
        self.flow.written += sum(map(len, pieces))
        self._transport.writelines(pieces)

    def can_keep(self, exchange: Exchange) -> bool:
        """Whether the connection can serve another request after the answer that is about to start."""
        if not exchange.keep or self.server.draining:
            return False
        if self.phase == ANSWER:
            return True
        # Answered early. A client that was told to wait for "100" may send the body or not, so its next
        # bytes could mean either; and a chunked body has no known end to read past.
        if "expect" in exchange.request.headers or not isinstance(self._body, LengthBody):
            return False
        return self._body.left <= SKIP_MAX

    def _answer(self, exchange: Exchange) -> None:
        self.phase = ANSWER
        self.deadline = inf
        try:
            self.server.app.on_request(exchange)
        except Exception:
            log.exception("request %s: the handler failed", exchange.request.request_id)
            if not exchange.closed:
                exchange.call_on_abort()
            message = "The server failed on this request; see its log."
            exchange.fail(self.server.error(500, message, exchange.request))

    def finish(self, exchange: Exchange) -> None:
        """The exchange is closed: report it, and make the connection ready for what comes next."""
        now = monotonic()
        self.exchange = None
        self.server.done(exchange, now - exchange.request.t_start)
        exchange.on_abort = exchange.on_pause = exchange.on_resume = None  # they lead back to the application
        if self.phase == CLOSED:
            return
        if not exchange.keep or self.server.draining:
            if self.phase != ANSWER or self._stash:
                self._linger()
            elif self._consuming:
                self.phase = ENDING
            else:
                self._close()
        elif self.phase == BODY:
            self.phase = SKIP
            assert isinstance(self._body, LengthBody)
            self._body.discard()
        else:
            self._rest(now)

    def cut_off(self, exchange: Exchange) -> None:
        """End a stream in the middle. Over HTTP/1.0 only a reset tells the client that it is not whole."""
        self.phase = CLOSED
        self.finish(exchange)
        if exchange.http10:
            self.flow.reset()
        else:
            self._transport.close()

    def _refuse(self, error: HttpError) -> None:
        """Answer what is not a proper request with the application's error, then close."""
        exchange = self.exchange
        if exchange is None:
            request = Request("-", "-", {}, {}, self.server.ids.make(), self._name_peer(), monotonic())
            exchange = self.exchange = Exchange(self, request, False, False)
            self.server.n_active += 1
        exchange.keep = False
        exchange.send(self.server.error(error.status, error.message, exchange.request))

    # Resting and leaving.

    def _rest(self, now: float) -> None:
        if self.server.draining:
            self._close()
            return
        self.phase = IDLE
        self.deadline = now + self.server.limits.keepalive_timeout
        if self._stash and not self._consuming:
            self._go_on_soon()

    def _close(self) -> None:
        """Close once everything written has left."""
        self.phase = CLOSED
        self.deadline = inf
        self._transport.close()

    def _linger(self) -> None:
        self.phase = LINGER
        self.deadline = monotonic() + LINGER_SECONDS
        self._drop_input()
        self.flow.end_writing()
        self.flow.resume_reading()

    def _drop_input(self) -> None:
        self._drop_head()
        self._body = None
        self._stash = b""

    def _drop_head(self) -> None:
        if self._head is not None:
            self._head.reset(False)  # parts it from its parser, which refers back to it
            self._head = None

    def _abandon(self) -> bool:
        """Give up the exchange under way; False if there was none."""
        exchange = self.exchange
        if exchange is None:
            return False
        self.phase = CLOSED
        exchange.abandon()
        self.finish(exchange)
        return True

    def _give_up(self) -> None:
        """A mistake of ours must cost this connection only."""
        log.exception("a connection failed inside the server")
        self.abort()

    def abort(self) -> None:
        """Give up at once what is in flight and what was written."""
        self._abandon()
        self.phase = CLOSED
        self.flow.reset()

    def shut(self) -> None:
        """The server closes: the answer under way is given up, what was written may still leave."""
        self._abandon()
        self.phase = CLOSED
        self._transport.close()

    def drain(self) -> None:
        """No further requests on this connection; one that has begun is still answered."""
        if self.phase == IDLE and not self._stash:
            self._close()

    # Time.

    @property
    def may_be_due(self) -> bool:
        """Whether a sweep has anything to look at beside the deadline."""
        flow = self.flow
        return (
            flow.written != flow.settled
            or flow.read_paused
            or (self._head is not None and self.phase == IDLE)
        )

    def sweep(self, now: float) -> None:
        """Called about twice a second if anything here may be due."""
        flow = self.flow
        if now >= self.deadline:
            self._on_deadline()
        elif flow.stalled(now, self.server.limits.write_timeout) or (flow.read_paused and flow.hung_up()):
            self.abort()
        elif self.phase == IDLE:
            self._drop_head()  # an idle connection does without a parser

    def _on_deadline(self) -> None:
        self.deadline = inf
        limits = self.server.limits
        if self.phase == HEAD:
            self._refuse(
                HttpError(408, f"The request's headers took longer than {limits.header_timeout:g} s.")
            )
        elif self.phase == BODY:
            self._refuse(HttpError(408, f"The request's body took longer than {limits.body_timeout:g} s."))
        else:
            self._close()

    def _name_peer(self) -> str:
        if not self._peer:
            self._peer = peer_name(self._transport.get_extra_info("peername"))
        return self._peer
