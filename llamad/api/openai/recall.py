"""Reads stored responses for a request: the conversation that it continues, and the items that it refers to.

Any thread; on the event loop only if n_bytes() is small. Each stored response is decoded at most once, and all of them
together have the limits of one body, because the decoder holds the GIL. Raises every 400 about them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llamad.api.request.errors import ApiError, bad
from llamad.api.service.response_store import ResponseStore, Stored
from llamad.base import json_shape

REFERENCES_MAX = 1024


def n_bytes(previous: str | None, sent: Any, store: ResponseStore, key: str) -> int:
    """Return how many bytes a request would have to decode: those of the response that it continues, and of the
    responses with the items that it refers to."""
    before = store.find(key, previous) if previous is not None else None
    total = before.n_bytes_continued if before is not None else 0
    references = [item["id"] for item in sent if _is_reference(item)] if isinstance(sent, list) else []
    owners = (store.holding(key, item) for item in references[:REFERENCES_MAX] if isinstance(item, str))
    return total + sum({one.ids: len(one.output) for one in owners if one is not None}.values())


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "item_reference" and "id" in item


class Recall:
    """The stored responses that one request has decoded so far."""

    def __init__(self, store: ResponseStore, key: str) -> None:
        self._store = store
        self._key = key
        self._values_left = json_shape.VALUES_MAX
        self._items: dict[str, dict[str, Any]] = {}
        self._referred: set[str] = set()

    def conversation(self, previous: str) -> list[Any]:
        """Return the items up to the end of this response."""
        stored = self._store.find(self._key, previous)
        if stored is None:
            raise bad(
                f'"previous_response_id": "{previous[:64]}" is not stored (any more);'
                " send the whole conversation as input"
            )
        items: list[Any] = self._decoded(stored.items)
        return items + self._output(stored)

    def with_items(self, sent: list[Any]) -> list[Any]:
        """Return the items that were sent, with stored ones in place of references."""
        return [self._item(item, i) for i, item in enumerate(sent)]

    def _item(self, item: Any, i: int) -> Any:
        if not isinstance(item, dict) or item.get("type") != "item_reference":
            return item
        id = item.get("id")
        if not isinstance(id, str):
            raise _lost(i)
        if id in self._referred:
            raise bad(f'"input[{i}]" refers to the same item as one before; send each reference once')
        self._referred.add(id)
        if len(self._referred) > REFERENCES_MAX:
            raise bad(f'"input" may have at most {REFERENCES_MAX} references to stored items')
        if id not in self._items:
            stored = self._store.holding(self._key, id)
            if stored is None:
                raise _lost(i)
            self._output(stored)
        return self._items[id]

    def _output(self, stored: Stored) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._decoded(stored.output)
        self._items.update((item["id"], item) for item in items)
        return items

    def _decoded(self, data: bytes) -> Any:
        self._values_left = json_shape.values_left(data, self._values_left)
        if self._values_left < 0:
            raise bad(
                "The stored responses that the request refers to have too many values; send less of them"
            )
        return msgspec.json.decode(data)


def _lost(i: int) -> ApiError:
    return bad(f'"input[{i}]": the item that it refers to is not stored (any more); send the item itself')
