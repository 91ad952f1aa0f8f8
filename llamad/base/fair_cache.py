"""A cache that several owners share. No owner sees another's entries; the owner with the most bytes makes room.

Used on the event loop. It must not know what the entries are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")


class _Owner(msgspec.Struct):
    entries: OrderedDict[Hashable, tuple[object, int]] = msgspec.field(default_factory=OrderedDict)
    n_bytes: int = 0


class FairCache(Generic[V]):
    """When the cache is full, it drops the least recently used entry of the owner that has the most bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._owners: dict[Hashable, _Owner] = {}
        self.n_bytes = 0

    def find(self, owner: Hashable, name: Hashable) -> V | None:
        """Return the value and mark it as the most recently used; return None if there is none."""
        own = self._owners.get(owner)
        if own is None or name not in own.entries:
            return None
        own.entries.move_to_end(name)
        value: V = own.entries[name][0]  # type: ignore[assignment]
        return value

    def put(self, owner: Hashable, name: Hashable, value: V, n_bytes: int) -> list[V]:
        """Store the value, and drop other entries until the cache fits its limit. Return what was dropped."""
        own = self._owners.setdefault(owner, _Owner())
        if name in own.entries:
            self.remove(owner, name)
            own = self._owners.setdefault(owner, _Owner())
        own.entries[name] = (value, n_bytes)
        own.n_bytes += n_bytes
        self.n_bytes += n_bytes
        dropped: list[V] = []
        while self.n_bytes > self._bytes_max:
            largest = max(self._owners, key=lambda one: self._owners[one].n_bytes)
            dropped.append(self.remove(largest, next(iter(self._owners[largest].entries))))
        return dropped

    def remove(self, owner: Hashable, name: Hashable) -> V:
        """Remove an entry, which must be there, and return its value."""
        own = self._owners[owner]
        value: V
        value, n_bytes = own.entries.pop(name)  # type: ignore[assignment]
        own.n_bytes -= n_bytes
        self.n_bytes -= n_bytes
        if not own.entries:
            del self._owners[owner]
        return value
