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

_encode = msgspec.json.Encoder().encode


class Stored(msgspec.Struct, frozen=True):
    """A response as it was sent; the conversation up to it, which are the items of all earlier turns and its own input;
    and what the next turn needs of the response itself: its items, and their ids."""

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
        """What the next turn decodes."""
        return len(self.items) + len(self.output)


def _bare(item: dict[str, Any]) -> dict[str, Any]:
    """An item without the logprobs of its text: no prompt has them, and they are most of what there is to decode."""
    content = item.get("content")
    if not isinstance(content, list):
        return item
    return {**item, "content": [{k: v for k, v in part.items() if k != "logprobs"} for part in content]}


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
        for item in gone.ids:
            self.items.pop(item, None)
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
            shelf.items.update(dict.fromkeys(stored.ids, id))
            while len(shelf.kept) > self._kept_max or shelf.n_bytes > self._bytes_max:
                shelf.drop(next(iter(shelf.kept)))

    def find(self, key: str, id: str) -> Stored | None:
        with self._lock:
            shelf = self._shelves.get(key)
            found = shelf.kept.get(id) if shelf is not None else None
            if shelf is not None and found is not None:
                shelf.kept.move_to_end(id)
            return found

    def holding(self, key: str, item: str) -> Stored | None:
        """The stored response that has this item."""
        with self._lock:
            shelf = self._shelves.get(key)
            owner = shelf.items.get(item) if shelf is not None else None
        return self.find(key, owner) if owner is not None else None

    def drop(self, key: str, id: str) -> bool:
        """Whether it was there."""
        with self._lock:
            shelf = self._shelves.get(key)
            return shelf is not None and shelf.drop(id)
