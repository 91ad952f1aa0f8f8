"""The table of open connections: it decides which connections are accepted, and which are closed when it is full.
Runs on the event loop when a client connects or disconnects; never looks at a request."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Protocol

GIVE_WAY_MAX = 128


class Holder(Protocol):
    """A connection, or a TLS handshake that may become one."""

    @property
    def since(self) -> float:
        """When its client last sent a whole request or got a whole response."""

    @property
    def waits(self) -> bool:
        """Whether it waits for its client: it is idle, or its request is not complete."""

    @property
    def has_unsent(self) -> bool: ...

    def give_way(self) -> None: ...


class ConnectionTable:
    """Holds `n_max` connections, and `address_max` of one address. When it or an address is full, it closes connections
    that wait for their client: the oldest ones of the address with the most waiting ones. So a client that opens
    connections and leaves them idle loses its own, and a proxy that all clients come through merely reuses fewer."""

    def __init__(self, n_max: int, address_max: int) -> None:
        self._n_max = n_max
        self._address_max = address_max
        self._addresses: dict[Holder, str] = {}
        self._holders: dict[str, set[Holder]] = {}
        self.n_gave_way = 0

    def resize(self, n_max: int, address_max: int) -> None:
        """Change the limits for new connections; open ones stay."""
        self._n_max = n_max
        self._address_max = address_max

    def __len__(self) -> int:
        return len(self._addresses)

    def take(self, holder: Holder, address: str, is_shared: bool = False) -> bool:
        """Add a connection and return True, or return False if there is no room and none can be made. `is_shared`: the
        address is that of a trusted proxy, to which the limit of one address does not apply."""
        own = self._holders.setdefault(address, set())
        is_limited = self._n_max > self._address_max and not is_shared
        if is_limited and len(own) >= self._address_max and not self._make_room(own, self._address_max):
            return False
        if len(self._addresses) >= self._n_max and not self._make_room(self._heaviest(), self._n_max):
            if not own:
                del self._holders[address]
            return False
        self._addresses[holder] = address
        self._holders.setdefault(address, own).add(holder)
        return True

    def leave(self, holder: Holder) -> None:
        """Remove a connection; does nothing if it is not in the table."""
        address = self._addresses.pop(holder, None)
        if address is not None:
            own = self._holders[address]
            own.discard(holder)
            if not own:
                del self._holders[address]

    def _heaviest(self) -> Iterable[Holder]:
        """Return the connections of the address with the most waiting ones."""
        return max(self._holders.values(), key=lambda own: sum(one.waits for one in own), default=())

    def _make_room(self, among: Iterable[Holder], n_max: int) -> bool:
        """Close the connections that have waited longest; those that still have bytes to send come last. Return
        whether there were any."""
        waiting = [one for one in among if one.waits]
        # Two sorts by one attribute take a third of the time of one sort by both.
        waiting.sort(key=attrgetter("since"))
        waiting.sort(key=attrgetter("has_unsent"))
        # The search looks at every connection, so several are closed at once.
        for holder in waiting[: max(1, min(GIVE_WAY_MAX, n_max // 64))]:
            self.leave(holder)
            self.n_gave_way += 1
            holder.give_way()
        return bool(waiting)
