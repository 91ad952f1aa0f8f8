# Owns: the count of memory that requests hold, per client, from the first byte of a body to the end of the response.
# Runs on the event loop. It only counts: code that allocates memory for a request reports that, and when it is free
# again.

# Making room frees 1/SPARE of the budget more than needed, so that it is not needed again at once.
SPARE = 16


class BudgetFull(Exception):
    """The budget has no room, and no client holds more than the one that asked."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(
            f"Requests already hold the {bytes_max} bytes that --bodies-max-bytes allows; try again in a moment."
        )


cdef class Share:
    """The memory that one client holds."""


cdef class Budget:
    """The memory budget of all requests. If it is full, the client that holds most gives way."""

    def __init__(self, long long bytes_max):
        self.bytes_max = bytes_max
        self._shares = {}
        self._claims = set()

    def resize(self, long long bytes_max) -> None:
        """Set another limit. Requests keep what they hold, unless another client needs the room."""
        self.bytes_max = bytes_max

    def admit_one(self, long long n_bytes) -> None:
        """Raise the limit, if it is smaller, so that a body of this size fits alone."""
        if n_bytes > self.bytes_max:
            self.bytes_max = n_bytes

    def forget_peak(self) -> None:
        """Restart the peak from what is held now."""
        self.n_peak = self.n_bytes

    cpdef Claim claim(self, client):
        """Return a new claim of this client, which holds nothing yet. It must be released once."""
        cdef Claim claim = Claim.__new__(Claim)
        cdef Share share = self._shares.get(client)
        if share is None:
            share = self._shares[client] = Share.__new__(Share)
            share.client = client
        share.n_claims += 1
        claim.budget = self
        claim.share = share
        claim._n_holders = 1
        self._claims.add(claim)
        return claim

    def held_by(self, client) -> int:
        """Return the number of bytes that this client holds."""
        cdef Share share = self._shares.get(client)
        return 0 if share is None else share.n_bytes

    cdef _drop(self, Claim claim):
        self._claims.discard(claim)
        claim.share.n_claims -= 1
        if claim.share.n_claims == 0:
            del self._shares[claim.share.client]

    cdef bint _has_room(self, Claim claim) noexcept:
        """Return whether there is room for what the claim holds already. A request that is alone always has room."""
        cdef long long n_bytes = self.n_bytes - self._n_leaving
        return n_bytes <= self.bytes_max or n_bytes <= claim.n_bytes

    cdef _make_room(self, Claim asking):
        """Make other requests give way if that makes room: requests of clients that hold more than this one and whose
        response has not begun, and larger bodies of its own client that are still coming. The client that holds most
        goes first, its largest request first."""
        cdef Claim one
        cdef long long n_left = self.n_bytes - self._n_leaving
        ways = []
        for one in self._claims:
            if one.give_way is None or one._is_leaving or one is asking:
                continue
            if one._may_give_way_to(asking):
                ways.append((one.share.n_bytes, one.n_bytes, id(one), one))
                n_left -= one.n_bytes
        if n_left > self.bytes_max and n_left > asking.n_bytes:
            return
        ways.sort(reverse=True)
        for _, _, _, one in ways:
            if self.n_bytes - self._n_leaving <= self.bytes_max - self.bytes_max // SPARE:
                break
            if self._has_room(asking) and not one._may_give_way_to(asking):
                break
            self.n_refused += 1
            one._is_leaving = True
            self._n_leaving += one.n_bytes
            give_way, one.give_way = one.give_way, None
            give_way()


cdef class Claim:
    """What one request holds of the budget.

    Code that allocates memory for the request calls add() or set() before, and release() when it is done with it. A
    request has one claim, that of its exchange (`Exchange.claim`), which is released when the response ends or the
    client leaves. Work that continues after that, such as a thread that cannot be stopped, calls hold() first and
    release() at its end: the bytes count until the last holder has released them.

    `give_way` is called if another client needs the room; it ends the request. It is None if the request cannot be
    ended. `is_incomplete` is set while the body is still coming: such a request also gives way to one of its own
    client."""

    cpdef add(self, long long n_bytes):
        """Count n_bytes more, or fewer if negative. Raises BudgetFull, and then leaves the count unchanged; a smaller
        count always succeeds."""
        cdef Budget budget = self.budget
        if self._n_holders == 0:
            return
        self._change(n_bytes)
        if n_bytes <= 0 or budget._has_room(self):
            return
        budget._make_room(self)
        if not budget._has_room(self):
            self._change(-n_bytes)
            budget.n_refused += 1
            raise BudgetFull(budget.bytes_max)

    def set(self, long long n_bytes) -> None:
        """Set the count to n_bytes, not including shared memory. Raises BudgetFull as add() does."""
        self.add(n_bytes + self._n_shared - self.n_bytes)

    def use(self, Shared shared) -> None:
        """Count memory that is shared with other requests. Raises BudgetFull."""
        if self._n_holders == 0 or self in shared._claims:
            return
        if not shared._claims:
            self.add(shared.n_bytes)
            self._n_shared += shared.n_bytes
        shared._claims[self] = None
        if self._used is None:
            self._used = []
        self._used.append(shared)

    def hold(self) -> Claim:
        """Add a holder: the bytes count until one more release() has been called."""
        if self._n_holders != 0:
            self._n_holders += 1
        return self

    cpdef release(self):
        """Remove a holder. The last one gives all bytes back, and nothing counts any more after that."""
        cdef Shared shared
        cdef Claim heir
        if self._n_holders == 0:
            return
        self._n_holders -= 1
        if self._n_holders != 0:
            return
        if self._used is not None:
            for shared in self._used:
                is_payer = next(iter(shared._claims)) is self
                del shared._claims[self]
                if is_payer and shared._claims:
                    heir = next(iter(shared._claims))
                    heir._change(shared.n_bytes)
                    heir._n_shared += shared.n_bytes
            self._used = None
        if self._is_leaving:
            self.budget._n_leaving -= self.n_bytes
            self._is_leaving = False
        self._change(-self.n_bytes)
        self.give_way = None
        self.budget._drop(self)

    cdef bint _may_give_way_to(self, Claim asking) noexcept:
        if self.share is asking.share:
            return self.is_incomplete and self.n_bytes > asking.n_bytes
        return self.share.n_bytes > asking.share.n_bytes

    cdef void _change(self, long long n_bytes) noexcept:
        cdef Budget budget = self.budget
        self.n_bytes += n_bytes
        self.share.n_bytes += n_bytes
        budget.n_bytes += n_bytes
        if self._is_leaving:
            budget._n_leaving += n_bytes
        if budget.n_bytes > budget.n_peak:
            budget.n_peak = budget.n_bytes


cdef class Shared:
    """Memory that several requests may use at the same time, such as a compiled grammar. It counts once: for its first
    user, and when that one leaves, for the next."""

    def __init__(self, long long n_bytes):
        self.n_bytes = n_bytes
        self._claims = {}

    @property
    def n_users(self) -> int:
        return len(self._claims)
