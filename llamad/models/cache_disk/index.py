"""The index of the entries on disk: which files there are, and which one has most of a prompt.

Any thread; every method holds the lock for a short time. Must not touch the disk. An entry is listed under the hash of
each of its blocks, so that the longest match is found by walking the prompt's own hashes.
"""

from __future__ import annotations

import threading

import msgspec

from llamad.models.cache_disk.prefixes import BLOCK_TOKENS, Chain, Group
from llamad.models.cache_disk.value import Worth, value

# A use after this time is a return; earlier ones may belong to the request that has made the entry.
RETURN_SECONDS = 1.0


class Entry(msgspec.Struct, eq=False):
    """One file."""

    name: str
    group: Group
    n_tokens: int
    n_bytes: int  # of the file
    is_whole: bool
    has_session: bool
    created: float  # seconds since the epoch, like `used`
    used: float
    hashes: list[bytes]
    end: bytes


class Found(msgspec.Struct, frozen=True):
    """The entry that has most of a prompt, and how many of its tokens at least."""

    entry: Entry
    n_tokens: int


class Index:
    """`n_bytes` is the size of all files together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._by_block: dict[bytes, set[str]] = {}  # the names of entries that contain the block
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> set[str]:
        with self._lock:
            return set(self._entries)

    def add(self, entry: Entry) -> None:
        """Add an entry, or replace the one of this name."""
        with self._lock:
            self._remove(entry.name)
            self._entries[entry.name] = entry
            self.n_bytes += entry.n_bytes
            for block in entry.hashes:
                self._by_block.setdefault(block, set()).add(entry.name)

    def remove(self, name: str) -> None:
        """Forget an entry, if it is known."""
        with self._lock:
            self._remove(name)

    def _remove(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        if entry is None:
            return
        self.n_bytes -= entry.n_bytes
        for block in entry.hashes:
            names = self._by_block.get(block)
            if names is not None:
                names.discard(name)
                if not names:
                    del self._by_block[block]

    def use(self, name: str, now: float) -> None:
        """Note that an entry was used."""
        with self._lock:
            entry = self._entries.get(name)
            if entry is not None:
                entry.used = max(entry.used, now)

    def find(self, chain: Chain) -> Found | None:
        """Return the entry that has most of the prompt, or None."""
        hashes = chain.hashes
        with self._lock:
            n_known = self._n_known(hashes)
            for n_blocks in range(n_known, 0, -1):
                entries = [self._entries[name] for name in self._by_block[hashes[n_blocks - 1]]]
                found = [one for one in (_usable(entry, chain, n_blocks) for entry in entries) if one]
                if found:
                    return max(found, key=lambda one: (one.n_tokens, -one.entry.n_bytes))
        return None

    def _n_known(self, hashes: list[bytes]) -> int:
        """Return how many of a prompt's first blocks some entry has. All entries of a block have those before it."""
        low, high = 0, len(hashes)
        while low < high:
            middle = (low + high + 1) // 2
            if hashes[middle - 1] in self._by_block:
                low = middle
            else:
                high = middle - 1
        return low

    def superseded(self, entry: Entry) -> list[Entry]:
        """Return the entries whose blocks this longer entry has, too. Those that can be used only with all of their
        tokens are never superseded completely, so they are not among them."""
        with self._lock:
            if entry.is_whole:
                return []
            return [one for one in self._shorter(entry) if not one.is_whole]

    def _shorter(self, entry: Entry) -> list[Entry]:
        names = self._by_block.get(entry.hashes[0], set()) if entry.hashes else set()
        known = set(entry.hashes)
        return [
            one
            for one in (self._entries[name] for name in names)
            if one.name != entry.name and one.n_tokens <= entry.n_tokens and one.hashes[-1] in known
        ]

    def to_remove(self, n_bytes: int, now: float, entry: Entry | None = None) -> list[Entry] | None:
        """Return the entries with the smallest values that together have at least n_bytes; all if that is not enough.
        `entry` is a new one that needs the room: return None if it is worth less than one of them."""
        with self._lock:
            values = [(self._value(one, now), one.used, one.name) for one in self._entries.values()]
            least = self._value(entry, now) if entry is not None else float("inf")
            removed: list[Entry] = []
            for one_value, _, name in sorted(values):
                if n_bytes <= 0:
                    break
                if one_value > least:
                    return None
                one = self._entries[name]
                removed.append(one)
                n_bytes -= one.n_bytes
            return removed

    def _value(self, entry: Entry, now: float) -> float:
        last = self._by_block.get(entry.hashes[-1], set()) if entry.hashes else set()
        longer = (self._entries[name] for name in last if name != entry.name)
        return value(
            Worth(
                n_tokens=entry.n_tokens,
                n_bytes=entry.n_bytes,
                idle_seconds=now - entry.used,
                has_returned=entry.used > entry.created + RETURN_SECONDS,
                has_session=entry.has_session,
                is_superseded=any(one.n_tokens > entry.n_tokens for one in longer),
            )
        )


def _usable(entry: Entry, chain: Chain, n_blocks: int) -> Found | None:
    """Return what an entry that has the prompt's first n_blocks can give to it. The last token of a prompt is always
    computed."""
    if not entry.is_whole:
        return Found(entry, n_blocks * BLOCK_TOKENS)
    is_all = len(entry.hashes) == n_blocks and entry.n_tokens < chain.n_tokens
    if is_all and chain.end(entry.n_tokens) == entry.end:
        return Found(entry, entry.n_tokens)
    return None
