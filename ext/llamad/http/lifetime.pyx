# Owns: the deadlines of a connection, and every way in which it ends. connection.pyx handles its requests.
# Runs on the event loop.
from math import inf

from llamad.http.errors import HttpError
from llamad.http.request import address_of, peer_name

from llamad.http.exchange cimport Exchange, Way
from llamad.http.flow_control cimport Flow

# Closing with unread bytes makes the kernel reset the connection, and the reset can overtake the response. So the
# response is sent first, and then reading continues for this long or until the client closes.
LINGER_SECONDS = 2.0

cdef double _inf = inf


cdef class Lifetime(Way):
    """The part of a connection that its server uses. Connection implements the rest."""

    cdef _begin(self, server):
        self.server = server
        self._peer = self._address = ""
        self._stash = b""
        self.phase = IDLE
        self.deadline = self._phase_end = _inf

    cdef _refuse(self, error):
        """Respond with an error, then close."""
        raise TypeError("a connection does this")

    # Closing.

    cdef _close(self):
        """Close after everything written has been sent."""
        self.phase = CLOSED
        self.deadline = _inf
        self._transport.close()

    cdef _linger(self):
        self.phase = LINGER
        self.deadline = monotonic() + <double>LINGER_SECONDS
        self._drop_input()
        self.flow.end_writing()
        self.flow.resume_reading()

    cdef _drop_input(self):
        self._drop_head()
        self._body = None
        self._stash = b""

    cdef _drop_head(self):
        if self._head is not None:
            self._head.reset(False)  # breaks the reference cycle with its parser
            self._head = None

    cdef bint _abandon(self) except -1:
        """Give up the current exchange; return False if there is none."""
        cdef Exchange exchange = self.exchange
        if exchange is None:
            return False
        self.phase = CLOSED
        exchange.abandon()
        self.finish(exchange)
        return True

    def abort(self):
        """Close at once; give up the current exchange and everything that is not sent."""
        self._abandon()
        self.phase = CLOSED
        self.flow.reset()

    @property
    def waits(self) -> bool:
        """Whether it waits for its client, and not the client for a response."""
        return self.phase != ANSWER and self.phase != CLOSED

    @property
    def has_unsent(self) -> bool:
        return self.flow.written != self.flow.settled

    def give_way(self):
        """Close at once, because another client needs the place."""
        if self.phase == HEAD or self.phase == BODY:
            self._refuse(
                HttpError(503, "The server has no free connection (--connections-max); try again in a second.")
            )
        self.phase = CLOSED
        self.deadline = _inf
        transport = self._transport
        if transport.get_write_buffer_size() == 0 and transport.can_write_eof():
            transport.close()
        else:
            self.flow.reset()  # unsent bytes would keep it open, and so would the end of TLS

    def shut(self):
        """Close because the server stops: the current response is given up, but written bytes are still sent."""
        self._abandon()
        self.phase = CLOSED
        self._transport.close()

    def drain(self):
        """Accept no further requests on this connection; one that has begun still gets its response."""
        if self.phase == IDLE and not self._stash:
            self._close()

    # Time.

    @property
    def may_be_due(self) -> bool:
        """Whether a sweep must check anything beside the deadline."""
        cdef Flow flow = self.flow
        return (
            flow.written != flow.settled
            or flow.read_paused
            or (self._head is not None and self.phase == IDLE)
        )

    def sweep(self, double now):
        """Check deadlines and stalled clients. Called about twice a second if anything may be due."""
        cdef Flow flow = self.flow
        if now >= self.deadline:
            self._on_deadline()
        elif flow.stalled(now, self.server.limits.write_timeout) or (flow.read_paused and flow.hung_up()):
            self.abort()
        elif self.phase == IDLE:
            self._drop_head()  # an idle connection needs no parser

    cdef _on_deadline(self):
        cdef bint is_late = self.deadline >= self._phase_end
        self.deadline = _inf
        if self.phase == HEAD or self.phase == BODY:
            self._refuse(HttpError(408, self._why_late() if is_late else self._why_silent()))
        else:
            self._close()

    cdef str _why_late(self):
        limits = self.server.limits
        if self.phase == HEAD:
            return f"The request's headers took longer than {limits.header_timeout:g} s (--header-timeout)."
        return f"The request's body took longer than {limits.body_timeout:g} s (--body-timeout)."

    cdef str _why_silent(self):
        what = "headers" if self.phase == HEAD else "body"
        return f"Nothing more of the request's {what} came for {self.server.limits.read_timeout:g} s (--timeout)."

    @property
    def is_shared(self) -> bool:
        """Whether a proxy sends the requests of several clients on it."""
        return self._proxied is not None and self._proxied.is_shared

    @property
    def address(self) -> str:
        """The client's address, which is the same for all its connections."""
        if self._proxied is not None:
            return self._proxied.address
        if not self._address:
            self._address = address_of(self._transport.get_extra_info("peername"))
        return self._address

    cdef str _name_peer(self):
        if self._proxied is not None:
            return self._proxied.name
        if not self._peer:
            self._peer = peer_name(self._transport.get_extra_info("peername"))
        return self._peer
