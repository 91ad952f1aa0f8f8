"""The table of running completions, so that another request can act on one of them.

Runs on the event loop. An entry lives as long as its completion. Must not know what can be done to it.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Completion(Protocol):
    """A running completion. `key` is the name of the key that started it, `id` is the id of the completion, and
    `request_id` is the id of its request."""

    @property
    def key(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def request_id(self) -> str: ...


T = TypeVar("T", bound=Completion)


class RunningCompletions(Generic[T]):
    """The running completions, by their own id, which clients of a stream know, and by the id of their request, which a
    client may choose. Request ids are separate for each key; if two are equal, the later one counts."""

    def __init__(self) -> None:
        self._by_id: dict[str, T] = {}
        self._by_request: dict[tuple[str, str], T] = {}

    def add(self, one: T) -> None:
        self._by_id[one.id] = one
        self._by_request[one.key, one.request_id] = one

    def discard(self, one: T) -> None:
        if self._by_id.pop(one.id, None) is not None:
            own = (one.key, one.request_id)
            if self._by_request.get(own) is one:
                del self._by_request[own]

    def find(self, key: str, id: str) -> T | None:
        """Return the completion that has this id, whichever key started it, or the one whose request of this key has
        it."""
        return self._by_id.get(id) or self._by_request.get((key, id))

    def __len__(self) -> int:
        return len(self._by_id)
