"""Owns the table of running completions, so that another request can act on one of them.

Runs on the event loop. An entry lives as long as its completion; must not know what can be done to it.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Completion(Protocol):
    """`key` is the name of the key that began it; `id` is the answer's, `request_id` its request's."""

    @property
    def key(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def request_id(self) -> str: ...


T = TypeVar("T", bound=Completion)


class RunningCompletions(Generic[T]):
    """By the answer's id, which clients of a stream know, and by the request's, which a client may choose. The ids of
    requests are each key's own; of two that are equal the later one counts."""

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
        """The one with this id, of any key; or the one of this key's request."""
        return self._by_id.get(id) or self._by_request.get((key, id))

    def __len__(self) -> int:
        return len(self._by_id)
