"""Owns the table of open connections: who has a place in it, and who gives one up when it is full.
Runs on the event loop, when a client comes or goes; never looks at a request."""

from __future__ import annotations

from typing import Protocol

# Finding out who gives way takes a look at everyone, so several do at once.
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


class Places:
    """`n_max` in all, `address_max` for one address (0: as many as there are). A full table, or address, makes room by
    closing what waits for its client: of the address that has most of it, the longest waiting. So a client that opens
    connections and leaves them idle displaces its own, and a proxy that all come through merely reuses fewer."""

    def __init__(self, n_max: int, address_max: int = 0) -> None:
        self._n_max = n_max
        self._address_max = address_max
        self._addresses: dict[Holder, str] = {}
        self._counts: dict[str, int] = {}
        self.n_gave_way = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def take(self, holder: Holder, address: str) -> bool:
        """Give a newcomer a place, if there is one or one can be made."""
        if self._address_max and self._counts.get(address, 0) >= self._address_max:
            own = [one for one, its in self._addresses.items() if its == address and one.waits]
            if not self._make_room(own, 1):
                return False
        if len(self._addresses) >= self._n_max:
            n_wanted = max(1, min(GIVE_WAY_MAX, self._n_max // 64))
            if not self._make_room(self._of_heaviest(), n_wanted):
                return False
        self._addresses[holder] = address
        self._counts[address] = self._counts.get(address, 0) + 1
        return True

    def leave(self, holder: Holder) -> None:
        """May be called again."""
        address = self._addresses.pop(holder, None)
        if address is None:
            return
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def _of_heaviest(self) -> list[Holder]:
        """What waits of the address that has most of it."""
        waiting: dict[str, list[Holder]] = {}
        for holder, address in self._addresses.items():
            if holder.waits:
                waiting.setdefault(address, []).append(holder)
        return max(waiting.values(), key=len, default=[])

    def _make_room(self, waiting: list[Holder], n_wanted: int) -> bool:
        """Take the places of the longest waiting. An answer that still leaves is spared while others are left."""
        waiting.sort(key=lambda one: (one.has_unsent, one.since))
        for holder in waiting[:n_wanted]:
            self.leave(holder)
            self.n_gave_way += 1
            holder.give_way()
        return bool(waiting)
