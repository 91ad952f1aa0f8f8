"""The stored responses of /v1/responses. They are in memory, separate for each key; the least recently used ones are
dropped first.

Any thread: workers read bodies and write large responses. Must not outlive the process, nor know a request.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import msgspec

KEPT_MAX = 1024
BYTES_MAX = 64 << 20

_encode = msgspec.json.Encoder().encode


class Stored(msgspec.Struct, frozen=True):
    """A stored response. `body` is what was sent. `items` is the conversation before it: the items of all earlier turns
    and its own input. `output` and `ids` are what the next turn needs: the items of the response, and their ids."""

    body: bytes
    items: bytes
    output: bytes
    ids: tuple[str, ...]

    @classmethod
    def of(cls, response: dict[str, Any], items: bytes) -> Stored:
        output = response["output"]
        ids = tuple(item["id"] for item in output)
        return cls(_encode(response), items, _encode([_bare(item) for item in output]), ids)

    @property
    def n_bytes(self) -> int:
        return len(self.body) + self.n_bytes_continued

    @property
    def n_bytes_continued(self) -> int:
        """Return how many bytes the next turn decodes."""
        return len(self.items) + len(self.output)


def _bare(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without the logprobs of its text. No prompt needs them, and they would take most of the time to
    decode."""
    content = item.get("content")
    if not isinstance(content, list):
        return item
    return {**item, "content": [{k: v for k, v in part.items() if k != "logprobs"} for part in content]}


class _Shelf(msgspec.Struct):
    """The responses of one key by id, and for the id of each item the response that contains it."""

    kept: OrderedDict[str, Stored] = msgspec.field(default_factory=OrderedDict)
    items: dict[str, str] = msgspec.field(default_factory=dict)
    n_bytes: int = 0

    def drop(self, id: str) -> bool:
        gone = self.kept.pop(id, None)
        if gone is None:
            return False
        self.n_bytes -= gone.n_bytes
        for item in gone.ids:
            self.items.pop(item, None)
        return True


class ResponseStore:
    """The stored responses of all keys. `key` is the name of the client's key; clients without keys share one shelf."""

    def __init__(self, kept_max: int = KEPT_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._kept_max = kept_max
        self._bytes_max = bytes_max
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    def can_keep(self, n_bytes: int) -> bool:
        return n_bytes <= self._bytes_max

    def keep(self, key: str, id: str, stored: Stored) -> None:
        """Store a response for which can_keep() is true."""
        with self._lock:
            shelf = self._shelves.setdefault(key, _Shelf())
            shelf.drop(id)
            shelf.kept[id] = stored
            shelf.n_bytes += stored.n_bytes
            shelf.items.update(dict.fromkeys(stored.ids, id))
            while len(shelf.kept) > self._kept_max or shelf.n_bytes > self._bytes_max:
                shelf.drop(next(iter(shelf.kept)))

    def find(self, key: str, id: str) -> Stored | None:
        with self._lock:
            shelf = self._shelves.get(key)
            stored = shelf.kept.get(id) if shelf is not None else None
            if shelf is not None and stored is not None:
                shelf.kept.move_to_end(id)
            return stored

    def holding(self, key: str, item: str) -> Stored | None:
        """Return the stored response that contains this item."""
        with self._lock:
            shelf = self._shelves.get(key)
            owner = shelf.items.get(item) if shelf is not None else None
        return self.find(key, owner) if owner is not None else None

    def drop(self, key: str, id: str) -> bool:
        """Remove a response; return whether it was there."""
        with self._lock:
            shelf = self._shelves.get(key)
            return shelf is not None and shelf.drop(id)
