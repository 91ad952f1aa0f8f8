"""The session store: slot states in memory, by key and id, within a byte limit.

Event loop only. A blob never changes once stored, so restoring or archiving one needs a reference and no lock. Must
not touch files or the engine.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from llamad.protocol.blobs import Blob

# Every session is a memory mapping, and a process may have about 65,000 mappings.
SESSIONS_MAX = 10_000

Name = tuple[str, int]  # the key's name ("" without keys) and the session's id


class StoreFull(Exception):
    """The session does not fit; str() is a message for the client."""


class Session:
    """One saved state. Times are Unix seconds."""

    __slots__ = ("blob", "created_at", "gone", "id", "n_pins", "n_tokens", "updated_at")

    def __init__(self, id: int, blob: Blob, n_tokens: int, created_at: int, updated_at: int) -> None:
        self.id = id
        self.blob = blob
        self.n_tokens = n_tokens
        self.created_at = created_at
        self.updated_at = updated_at
        self.n_pins = 0  # restores and archives in progress
        self.gone = False  # no longer in the store; its bytes count until it is unpinned

    @property
    def size(self) -> int:
        return self.blob.size


class Place:
    """Room reserved for a save before its state exists, so that concurrent saves cannot overfill the store.
    Ends with put() or drop(); drop() after either does nothing."""

    __slots__ = ("_created_at", "_n_bytes", "_name", "_open", "_store")

    def __init__(self, store: Sessions, name: Name, n_bytes: int, created_at: int) -> None:
        self._store = store
        self._name = name
        self._n_bytes = n_bytes
        self._created_at = created_at  # creation time of an evicted session of the same name; 0: none
        self._open = True

    def put(self, blob: Blob, n_tokens: int) -> Session:
        """Store the state. Raises StoreFull if it is larger than the room reserved and the rest is not free."""
        self.drop()
        self._created_at = self._store._make_room(self._name, blob.size, self._created_at)
        return self._store._put(self._name, blob, n_tokens, self._created_at)

    def drop(self) -> None:
        if self._open:
            self._open = False
            self._store._unreserve(self._n_bytes)


class Sessions:
    """The store. With `evict`, the least recently saved or restored sessions are evicted when room is needed."""

    def __init__(
        self, bytes_max: int, *, evict: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self.bytes_max = bytes_max
        self.evict = evict
        self._clock = clock
        self._by_name: dict[Name, Session] = {}  # least recently used first
        self._turns: dict[Name, tuple[asyncio.Lock, list[None]]] = {}
        self._n_places = 0
        self.n_bytes = 0  # stored, reserved, and removed but pinned
        self.n_saves = 0
        self.n_restores = 0
        self.n_refused = 0
        self.n_evicted = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def of_key(self, key: str) -> list[Session]:
        """Return the sessions of one key, sorted by id."""
        return sorted(
            (one for (owner, _), one in self._by_name.items() if owner == key), key=lambda one: one.id
        )

    def find(self, name: Name) -> Session | None:
        return self._by_name.get(name)

    def reserve(self, name: Name, n_bytes: int) -> Place:
        """Make room for a state that is about to be saved. If it raises StoreFull, nothing has changed."""
        created_at = self._make_room(name, n_bytes, 0)
        self.n_bytes += n_bytes
        self._n_places += 1
        return Place(self, name, n_bytes, created_at)

    def remove(self, name: Name) -> Session | None:
        """Remove a session. Restores in progress keep its blob."""
        session = self._by_name.pop(name, None)
        if session is not None:
            session.gone = True
            self._let_go(session)
        return session

    @contextmanager
    def pinned(self, session: Session) -> Iterator[Blob]:
        """Use a session's blob: it is not evicted meanwhile, and its bytes still count."""
        session.n_pins += 1
        try:
            yield session.blob
        finally:
            session.n_pins -= 1
            self._let_go(session)

    def restored(self, name: Name, session: Session) -> None:
        """Note that the session was restored: it is now the most recently used one."""
        self.n_restores += 1
        if self._by_name.get(name) is session:
            del self._by_name[name]
            self._by_name[name] = session

    @asynccontextmanager
    async def turn(self, name: Name) -> AsyncIterator[None]:
        """Wait for the turn of the caller to replace or remove a session, including its file writes."""
        lock, users = self._turns.setdefault(name, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._turns[name]

    # Called by Place.

    def _put(self, name: Name, blob: Blob, n_tokens: int, created_at: int) -> Session:
        """Store a session, for which there must be room, so that this cannot fail."""
        now = int(self._clock())
        old = self.remove(name)
        if old is not None:
            created_at = old.created_at
        session = Session(name[1], blob, n_tokens, created_at or now, now)
        self._by_name[name] = session
        self.n_bytes += blob.size
        self.n_saves += 1
        return session

    def _unreserve(self, n_bytes: int) -> None:
        self.n_bytes -= n_bytes
        self._n_places -= 1

    def _let_go(self, session: Session) -> None:
        if session.gone and session.n_pins == 0:
            self.n_bytes -= session.size

    def _make_room(self, name: Name, n_bytes: int, created_at: int) -> int:
        """Evict sessions if room is needed, eviction is allowed and it frees enough; else raise StoreFull. The session
        of the same name is evicted last. Return its creation time in that case, else `created_at`."""
        n_over = self.n_bytes + n_bytes - self.bytes_max
        n_more = len(self._by_name) + self._n_places + (name not in self._by_name) - SESSIONS_MAX
        if n_over <= 0 and n_more <= 0:
            return created_at
        going: list[Name] = []
        if self.evict and n_bytes <= self.bytes_max:
            idle = [one for one, session in self._by_name.items() if session.n_pins == 0]
            idle.sort(key=lambda one: one == name)  # stable: the least recently used stays first
            for one in idle:
                if n_over <= 0 and n_more <= 0:
                    break
                going.append(one)
                n_over -= self._by_name[one].size
                n_more -= 1
        if n_over > 0 or n_more > 0:
            self.n_refused += 1
            raise StoreFull(self._why(n_bytes, n_over))
        for one in going:
            gone = self.remove(one)
            if one == name and gone is not None:
                created_at = gone.created_at
        self.n_evicted += len(going)
        return created_at

    def _why(self, n_bytes: int, n_over: int) -> str:
        if n_bytes > self.bytes_max:
            return (
                f"This session needs {n_bytes} bytes, more than the limit of {self.bytes_max} for all sessions;"
                " start llamad with a larger --sessions-max-bytes"
            )
        if n_over <= 0:
            return f"There are already {SESSIONS_MAX} sessions, the maximum; remove some"
        advice = "try again" if self.evict else "remove some, or start llamad with --sessions-evict"
        return (
            f"This session needs {n_bytes} bytes, and sessions already use {self.n_bytes} of {self.bytes_max}"
            f" (--sessions-max-bytes); {advice}"
        )
