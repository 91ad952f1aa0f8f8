"""Tells the readers of GET /models/sse what happens to models: changes of their status, the progress of loads and
downloads.

Runs on the event loop. A reader that does not read gets no more than EVENTS_MAX events to catch up with: then it is
dropped, and can connect again and ask for the whole list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

EVENTS_MAX = 1024
READERS_MAX = 256


class ModelEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event, as llama-server writes it. `model` is "*" if it is about all models."""

    model: str
    event: str
    data: dict[str, Any] | None = None


class ModelEvents:
    """Calls every reader with each event."""

    def __init__(self) -> None:
        self._readers: set[Callable[[ModelEvent], None]] = set()

    @property
    def is_full(self) -> bool:
        return len(self._readers) >= READERS_MAX

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def add(self, reader: Callable[[ModelEvent], None]) -> None:
        self._readers.add(reader)

    def remove(self, reader: Callable[[ModelEvent], None]) -> None:
        self._readers.discard(reader)

    def tell(self, model: str, event: str, data: dict[str, Any] | None = None) -> None:
        for reader in list(self._readers):
            reader(ModelEvent(model, event, data))
