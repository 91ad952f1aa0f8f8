"""Owns the stored responses of /v1/responses: in memory, each key's apart, the least recently used ones dropped first.

Any thread: bodies are read, and large answers written, by workers. Must not outlive the process, nor know a request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import msgspec

KEPT_MAX = 1024
BYTES_MAX = 64 << 20


class Stored(msgspec.Struct, frozen=True):
    """A response as it was sent, and the conversation up to it: the items of all earlier turns and its own input."""

    body: bytes
    items: bytes

    @property
    def n_bytes(self) -> int:
        return len(self.body) + len(self.items)

    def conversation(self) -> list[Any]:
        """The items that the next turn continues."""
        items: list[Any] = msgspec.json.decode(self.items)
        return items + self.output()

    def output(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.json.decode(self.body)["output"]
        return found


class _Shelf(msgspec.Struct):
    """The responses of one key, by id, and the responses of their items, by the items' ids."""

    kept: OrderedDict[str, Stored] = msgspec.field(default_factory=OrderedDict)
    items: dict[str, str] = msgspec.field(default_factory=dict)
    n_bytes: int = 0

    def drop(self, id: str) -> bool:
        gone = self.kept.pop(id, None)
        if gone is None:
            return False
        self.n_bytes -= gone.n_bytes
        for item in gone.output():
            self.items.pop(item["id"], None)
        return True


class ResponseStore:
    """`key` is the name of the client's key; clients without keys share one shelf."""

    def __init__(self, kept_max: int = KEPT_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._kept_max = kept_max
        self._bytes_max = bytes_max
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    def can_keep(self, n_bytes: int) -> bool:
        return n_bytes <= self._bytes_max

    def keep(self, key: str, id: str, stored: Stored) -> None:
        """Only what can_keep() accepts."""
        with self._lock:
            shelf = self._shelves.setdefault(key, _Shelf())
            shelf.drop(id)
            shelf.kept[id] = stored
            shelf.n_bytes += stored.n_bytes
            shelf.items.update((item["id"], id) for item in stored.output())
            while len(shelf.kept) > self._kept_max or shelf.n_bytes > self._bytes_max:
                shelf.drop(next(iter(shelf.kept)))

    def find(self, key: str, id: str) -> Stored | None:
        with self._lock:
            shelf = self._shelves.get(key)
            found = shelf.kept.get(id) if shelf is not None else None
            if shelf is not None and found is not None:
                shelf.kept.move_to_end(id)
            return found

    def item(self, key: str, id: str) -> dict[str, Any] | None:
        """An item of a stored response."""
        with self._lock:
            shelf = self._shelves.get(key)
            owner = shelf.items.get(id) if shelf is not None else None
        stored = self.find(key, owner) if owner is not None else None
        if stored is None:
            return None
        return next((item for item in stored.output() if item["id"] == id), None)

    def drop(self, key: str, id: str) -> bool:
        """Whether it was there."""
        with self._lock:
            shelf = self._shelves.get(key)
            return shelf is not None and shelf.drop(id)
