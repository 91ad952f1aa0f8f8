# Owns: the phases of one connection from the first byte of a request to the end of its response. lifetime.pyx has the
# other half: its deadlines and how it ends.
# Runs on the event loop. Neither a client's bytes nor an error in the application may raise an exception out of it.
import asyncio
import logging
from math import inf

from cpython.bytes cimport PyBytes_GET_SIZE

from llamad.base.memory_budget import BudgetFull
from llamad.http.response_head import CONTINUE
from llamad.http.body import ChunkedBody, LengthBody, too_large
from llamad.http.errors import HttpError
from llamad.http.flow_control import PIPELINE_MAX
from llamad.http.request_head import HeadReader
from llamad.http.request import Response

from llamad.base.memory_budget cimport Budget, Claim
from llamad.http.exchange cimport Exchange, new_exchange
from llamad.http.flow_control cimport Flow
from llamad.http.head_cache cimport Heads, skip_blank, whole_head
from llamad.http.lifetime cimport ANSWER, BODY, CLOSED, ENDING, HEAD, IDLE, SKIP, Lifetime, monotonic
from llamad.http.request cimport Head, Request, RequestIds

log = logging.getLogger("llamad.http")

# If a refused body has at most this many bytes left, they are read and dropped to keep the connection; else it closes.
SKIP_MAX = 64 * 1024
# A body that arrives in pieces of this size arrives faster than it can be handled.
BREATHE_BYTES = 128 * 1024
# Requests of one connection that are handled before the event loop continues with others.
TURN_MAX = 16
# The same limit in bytes; a larger request has a turn of its own. 8 KB of short header lines take 3 ms.
TURN_BYTES = 8 * 1024

cdef int _TURN_MAX = TURN_MAX
cdef Py_ssize_t _TURN_BYTES = TURN_BYTES
cdef Py_ssize_t _PIPELINE_MAX = PIPELINE_MAX
cdef double _inf = inf
cdef dict _NOTHING = {}


cdef class Connection(Lifetime):
    """The connection of one client. It has the methods of an asyncio Protocol."""

    cdef bint _consuming            # _consume() is running and will notice a changed phase
    cdef Heads _heads
    cdef Budget _budget
    cdef bint _counts_body          # if not, the body goes to memory that the application counts

    def __init__(self, server):
        self._begin(server)
        self._heads = server.heads
        self._budget = server.budget

    # Called by the transport.

    def connection_made(self, transport):
        self._transport = transport
        self.flow = Flow(transport, self.server.limits.stream_buffer_bytes)
        self.since = monotonic()
        self.deadline = self.since + <double>self.server.limits.keepalive_timeout
        if self.server.proxies is not None:
            self._proxied = self.server.proxies.meet(transport.get_extra_info("peername"))
        refusal = self.server.admit(self)
        if refusal is not None:
            self._turn_away(refusal)
        elif self._proxied is not None and self._proxied.awaits_preface:
            self._await_head()

    cdef _turn_away(self, refusal):
        self.put(refusal)
        if self.server.can_linger():
            self._linger()
        else:
            self._close()

    def data_received(self, bytes data):
        try:
            if self.phase >= ENDING:
                return
            if self._proxied is not None and self._proxied.awaits_preface:
                data = self._read_preface(data)
            if self._stash:
                self._put_by(self._stash[self._stash_pos :] + data, 0)
            else:
                self._consume(data, 0)
        except Exception:
            self._give_up()

    def eof_received(self):
        # A client that closes its side has left: a client that waits for a response does not do that.
        if self._abandon():
            self.flow.reset()
        self.phase = CLOSED
        return self.server.closes_later(self)

    def connection_lost(self, exc):
        self._abandon()
        self.phase = CLOSED
        self.deadline = _inf
        self.flow.settle()
        self._drop_input()
        self.server.forget(self)

    def pause_writing(self):
        self.flow.write_paused = True
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self):
        self.flow.write_paused = False
        if self.exchange is not None:
            self.exchange.resume()
        elif self._stash:
            self._go_on_soon()

    # Reading.

    cdef _consume(self, bytes data, Py_ssize_t pos):
        """Run through the phases as far as the bytes and open responses allow; stash the rest."""
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        cdef Py_ssize_t turn_end = pos + _TURN_BYTES
        cdef int n_heads = 0
        self._consuming = True
        try:
            while pos < n:
                if self.phase <= HEAD:
                    if self.flow.write_paused or n_heads == _TURN_MAX or pos >= turn_end:
                        self._put_by(data, pos)
                        if not self.flow.write_paused:
                            self._go_on_soon()
                        return
                    pos = self._read_head(data, pos)
                    n_heads += 1
                elif self.phase == ANSWER:
                    self._put_by(data, pos)
                    return
                elif self.phase < ENDING:
                    pos = self._read_body(data, pos)
                    if self._body is not None and self._body.needs_turn:
                        self._put_by(data, pos)
                        self._go_on_soon()
                        return
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
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.phase == BODY and n >= BREATHE_BYTES:
            self.flow.breathe()

    cdef _put_by(self, bytes data, Py_ssize_t pos):
        """Keep bytes for later. Reading continues, because only reading shows that the client has left."""
        self._stash, self._stash_pos = data, pos
        if len(data) - pos > _PIPELINE_MAX:
            self.flow.pause_reading()
        else:
            self.flow.resume_reading()

    cdef _go_on_soon(self):
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self):
        """Continue with stashed bytes: a response has ended, or the client has read what was sent."""
        if self._stash and self.phase != ANSWER and self.phase < ENDING:
            data, self._stash = self._stash, b""
            try:
                self._consume(data, self._stash_pos)
            except Exception:
                self._give_up()

    cdef bytes _read_preface(self, bytes data):
        """Read the header that a proxy sends before its first request; return the bytes after it."""
        try:
            data = self._proxied.feed(data)
        except HttpError as error:
            self._refuse(error)
            return b""
        if data is None:
            self._wait_for_more(monotonic())
            return b""
        refusal = self.server.reseat(self)
        if refusal is not None:
            self._turn_away(refusal)
            return b""
        self.phase = IDLE
        self.since = monotonic()
        self.deadline = self.since + <double>self.server.limits.keepalive_timeout
        return data

    cdef Py_ssize_t _read_head(self, bytes data, Py_ssize_t pos) except -1:
        """Read a head or a piece of one, and the body if its bytes are there. Return the new position."""
        cdef bytes piece = None
        cdef Head head
        if self.phase == IDLE:
            pos = skip_blank(data, pos)
            piece = whole_head(data, pos)
            head = self._heads.find(piece) if piece is not None else None
            if head is not None:
                return self._on_head(head, data, pos + PyBytes_GET_SIZE(piece))
            if pos == PyBytes_GET_SIZE(data):
                return pos
        else:
            self._wait_for_more(monotonic())
        reader = self._head
        if reader is None:
            reader = self._head = HeadReader(self.server.limits.header_max_bytes)
        pos = reader.feed(data, pos)
        if reader.complete:
            head = self._heads.read(reader, piece)
            reader.reset(reader.reusable and head.length == 0)
            return self._on_head(head, data, pos)
        if self.phase == IDLE and reader.started:
            self.since = monotonic()
            self._await_head()
        return pos

    cdef _await_head(self):
        """Start the deadlines of a head that has begun at `since`."""
        self.phase = HEAD
        self._phase_end = self.since + <double>self.server.limits.header_timeout
        self._wait_for_more(self.since)

    cdef _wait_for_more(self, double now):
        """Set the deadline for the next bytes of a request, within the deadline of its phase."""
        self.deadline = min(self._phase_end, now + <double>self.server.limits.read_timeout)

    cdef Py_ssize_t _read_body(self, bytes data, Py_ssize_t pos) except -1:
        body = self._body
        self._wait_for_more(monotonic())
        pos = body.feed(data, pos)
        if self.phase == BODY and self._counts_body:
            self._count_body(body.n_bytes)
        if body.done:
            self._body = None
            if self.phase == SKIP:
                self._rest(monotonic())
            else:
                self.exchange.request.body = body.take()
                self._answer(self.exchange)
        return pos

    cdef Py_ssize_t _on_head(self, Head head, bytes data, Py_ssize_t pos) except -1:
        """Make the exchange for a complete head and let the application check it. Return the new position."""
        cdef Request request = Request.__new__(Request)
        cdef Exchange exchange
        server = self.server
        request.head = head
        request.method = head.method
        request.path = head.path
        request.headers = head.headers
        request.body = b""
        request.request_id = (<RequestIds>server.ids).take_or_make_id(head.offered_id)
        request.peer = self._name_peer() if self._proxied is None else self._proxied.client(head.headers)
        request.t_start = self.since = monotonic()
        request.params = _NOTHING
        request.key_name = ""
        exchange = self.exchange = new_exchange(self, request, head.http10, head.keep_alive)
        server.n_active += 1
        if head.malformed is not None:
            raise HttpError(*head.malformed)
        self.deadline = _inf
        self.phase = ANSWER
        if head.length != 0:
            self.phase = BODY
            self._phase_end = request.t_start + (<double>server.limits.body_timeout or _inf)
            self._wait_for_more(request.t_start)
        response = server.judge(request) if head.refused is None else server.error(*head.refused, request)
        if response is not None:
            if head.length > 0:
                self._body = LengthBody(head.length)
            exchange.send(response)
        elif head.length == 0:
            self._answer(exchange)
        else:
            return self._begin_body(exchange, head, data, pos)
        return pos

    cdef Py_ssize_t _begin_body(self, Exchange exchange, Head head, bytes data, Py_ssize_t pos) except -1:
        """Take a body that came with its head, or prepare to read it. Return the new position."""
        limit = self.server.body_max(exchange.request)
        flag = "--body-max-bytes" if limit == self.server.limits.body_max_bytes else ""
        if head.length > limit:
            raise too_large(limit, flag)
        buffer = self.server.body_buffer(exchange.request, head.length if head.length > 0 else limit)
        if isinstance(buffer, Response):
            if head.length > 0:
                self._body = LengthBody(head.length)
            exchange.send(buffer)
            return pos
        self._counts_body = buffer is None
        if buffer is None and limit > self._budget.bytes_max:
            self._budget.admit_one(limit)
        if buffer is None and 0 < head.length <= PyBytes_GET_SIZE(data) - pos:
            self._count_body(head.length)
            exchange.request.body = data[pos : pos + head.length]
            self._answer(exchange)
            return pos + head.length
        if buffer is not None:
            # A body above the usual limit may take longer in proportion: the slowest allowed rate stays the same.
            limits = self.server.limits
            self._phase_end += <double>limits.body_timeout * (len(buffer) // limits.body_max_bytes)
            self._wait_for_more(self.since)
        self._body = LengthBody(head.length) if head.length > 0 else ChunkedBody(limit, buffer, flag)
        if buffer is not None and head.length > 0:
            self._body.buffer = buffer
        if head.expects and not exchange.http10:
            self.put(CONTINUE)
        return pos

    cdef _count_body(self, long long n_bytes):
        """Count the bytes of the body that have arrived. Raises HttpError if there is no room for them."""
        cdef Exchange exchange = self.exchange
        cdef Claim claim = exchange._claim
        if claim is None:
            claim = exchange.take_claim()
        if not claim.is_incomplete:
            claim.is_incomplete = True
            claim.give_way = self._give_up_body
        try:
            claim.add(n_bytes - exchange.n_body)
        except BudgetFull as error:
            raise HttpError(503, str(error)) from None
        exchange.n_body = n_bytes

    cdef Claim new_claim(self, Exchange exchange):
        return self._budget.claim(exchange.request.key_name or self.address)

    # Responding.

    cdef put(self, bytes data):
        self.flow.written += PyBytes_GET_SIZE(data)
        self._transport.write(data)

    cdef put_two(self, bytes first, second):
        self.flow.written += PyBytes_GET_SIZE(first) + len(second)
        self._transport.writelines((first, second))

    cdef put_piece(self, data):
        self.flow.written += len(data)
        self._transport.write(data)

    cdef bint can_keep(self, Exchange exchange) except -1:
        """Return whether the connection can serve another request after the response that is about to start."""
        if not exchange.keep or self.server.closing:
            return False
        if self.phase == ANSWER:
            return True
        # The response comes before the end of the body. A client that was told to wait for "100" may send the body or
        # not, so its next bytes could mean either; and the end of a chunked body is unknown.
        if "expect" in exchange.request.headers or not isinstance(self._body, LengthBody):
            return False
        return self._body.left <= SKIP_MAX

    cdef _answer(self, Exchange exchange):
        self.phase = ANSWER
        self.deadline = _inf
        if exchange._claim is not None:
            exchange._claim.is_incomplete = False
            exchange._claim.give_way = None
        try:
            self.server.app.on_request(exchange)
        except HttpError as error:  # raised by the query
            exchange.fail(self.server.error(error.status, error.message, exchange.request))
        except Exception:
            log.exception("request %s: the handler failed", exchange.request.request_id)
            if not exchange.closed:
                exchange.call_on_abort()
            message = "The server failed on this request; see its log."
            exchange.fail(self.server.error(500, message, exchange.request))

    cdef finish(self, Exchange exchange):
        """Report a closed exchange, and make the connection ready for what comes next."""
        cdef double now = monotonic()
        self.exchange = None
        if exchange._claim is not None:
            exchange._claim.release()
        self.server.done(exchange, now - exchange.request.t_start)
        # These refer back to the application.
        exchange.on_abort = exchange.on_pause = exchange.on_resume = exchange.details = None
        if self.phase == CLOSED:
            return
        if not exchange.keep or self.server.closing:
            if self.phase != ANSWER or self._stash:
                self._linger()
            elif self._consuming:
                self.phase = ENDING
            else:
                self._close()
        elif self.phase == BODY:
            self.phase = SKIP
            self._body.discard()
        else:
            self._rest(now)

    cdef cut_off(self, Exchange exchange):
        """End a stream in the middle. With HTTP/1.0, only a reset tells the client that it is incomplete."""
        self.phase = CLOSED
        self.finish(exchange)
        if exchange.http10:
            self.flow.reset()
        else:
            self._transport.close()

    cdef _refuse(self, error):
        """Respond to an improper request with the application's error, then close."""
        cdef Exchange exchange = self.exchange
        if exchange is None:
            request = Request("-", "-", {}, {}, self.server.ids.make(), self._name_peer(), monotonic())
            exchange = self.exchange = new_exchange(self, request, False, False)
            self.server.n_active += 1
        exchange.keep = False
        exchange.send(self.server.refusal(error, exchange.request))

    # Between requests.

    cdef _rest(self, double now):
        if self.server.closing:
            self._close()
            return
        self.phase = IDLE
        self.since = now
        self.deadline = now + <double>self.server.limits.keepalive_timeout
        if self._stash and not self._consuming:
            self._go_on_soon()

    cdef _give_up(self):
        """Log an internal error and end this connection only."""
        log.exception("a connection failed inside the server")
        self.abort()

    def _give_up_body(self):
        """Refuse an unfinished body, because other clients need the memory that it holds."""
        self._refuse(HttpError(503, str(BudgetFull(self._budget.bytes_max))))
