"""Owns the table of open connections: who has a place in it, and who gives one up when it is full.
Runs on the event loop, when a client comes or goes; never looks at a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

GIVE_WAY_MAX = 128


class Holder(Protocol):
    """A connection, or a TLS handshake that may become one."""

    @property
    def since(self) -> float:
        """When its client last sent or got something whole."""

    @property
    def waits(self) -> bool:
        """Whether it waits for its client: idle, or with a request that is not complete."""

    @property
    def has_unsent(self) -> bool: ...

    def give_way(self) -> None: ...


class ConnectionTable:
    """`n_max` in all, `address_max` for one address. A full table, or address, makes room by
    closing what waits for its client: of the address that has most of it, the longest waiting. So a client that opens
    connections and leaves them idle displaces its own, and a proxy that all come through merely reuses fewer."""

    def __init__(self, n_max: int, address_max: int) -> None:
        self._n_max = n_max
        self._address_max = address_max
        self._addresses: dict[Holder, str] = {}
        self._holders: dict[str, set[Holder]] = {}
        self.n_gave_way = 0

    def resize(self, n_max: int, address_max: int) -> None:
        """Whoever has a place keeps it; newcomers meet the new limits."""
        self._n_max = n_max
        self._address_max = address_max

    def __len__(self) -> int:
        return len(self._addresses)

    def take(self, holder: Holder, address: str, is_shared: bool = False) -> bool:
        """Give a newcomer a place, if there is one or one can be made. `is_shared`: the address is a trusted proxy's,
        which may have as many as it likes."""
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
        """May be called again."""
        address = self._addresses.pop(holder, None)
        if address is not None:
            own = self._holders[address]
            own.discard(holder)
            if not own:
                del self._holders[address]

    def _heaviest(self) -> Iterable[Holder]:
        """All of the address that most connections wait of."""
        return max(self._holders.values(), key=lambda own: sum(one.waits for one in own), default=())

    def _make_room(self, among: Iterable[Holder], n_max: int) -> bool:
        """Take the places of the longest waiting. An answer that still leaves is spared while others are left."""
        waiting = [one for one in among if one.waits]
        waiting.sort(key=lambda one: (one.has_unsent, one.since))
        # To find them takes a look at everyone, so several give way at once.
        for holder in waiting[: max(1, min(GIVE_WAY_MAX, n_max // 64))]:
            self.leave(holder)
            self.n_gave_way += 1
            holder.give_way()
        return bool(waiting)
