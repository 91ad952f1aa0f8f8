"""A model's cache memory as the cache on disk sees it: whose entries they are, and which prompts are there already.

The event loop makes it and asks it; the writer thread updates `held`. Must not touch the disk.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from llamad.models.cache_disk.prefixes import BLOCK_TOKENS, Chain
from llamad.protocol.cache_memory import EntryInfo, Segment
from llamad.ses1.ses1 import Layout


class Memory(Protocol):
    """What is used of CacheMemory. Another process writes it, so that an entry may be gone at any moment."""

    @property
    def fingerprint(self) -> bytes: ...
    def entries(self) -> list[EntryInfo]: ...
    def pin(self, id: int, begin: int = 0, end: int = ...) -> list[Segment] | None: ...
    def unpin(self, id: int) -> None: ...


class Source:
    """One model. `build` names the build of llama.cpp that writes the states. `key_of` returns the name of the API key
    with this number, "" for 0, or None if it is unknown. `token_seconds` returns the time that computing a token takes,
    0 if it is unknown."""

    def __init__(
        self,
        memory: Memory,
        build: str,
        name_of: Callable[[], str],
        key_of: Callable[[int], str | None],
        token_seconds: Callable[[], float],
        *,
        n_slots: int,
    ) -> None:
        self.memory = memory
        self.name_of = name_of  # returns the model's name, for people
        self.key_of = key_of
        self.token_seconds = token_seconds
        self.layout: Layout | None = None  # of its states; set when an engine serves
        self._build = hashlib.sha256(build.encode()).hexdigest()[:16]
        self.is_leaving = False  # it gets no more entries
        self.held: frozenset[bytes] = frozenset()  # digests of the blocks in the cache memory
        self._recent: deque[frozenset[bytes]] = deque(maxlen=max(1, n_slots))

    @property
    def fingerprint(self) -> str:
        """What the entries depend on: the model's files, its settings, llama.cpp. It is "" before the first engine."""
        fingerprint = self.memory.fingerprint
        return fingerprint.hex() + self._build if any(fingerprint) else ""

    def note(self, chain: Chain) -> None:
        """Note a prompt that is submitted: a slot will have it."""
        self._recent.append(frozenset(chain.digests[1:]))

    def forget_slots(self) -> None:
        """Note that the engine has ended, and its slots with it."""
        self._recent.clear()

    def n_known(self, chain: Chain) -> int:
        """Return how many of the prompt's first tokens a slot or the cache memory has, as far as is known."""
        return max(_n_first(chain, one) for one in (self.held, *self._recent))


def _n_first(chain: Chain, known: frozenset[bytes]) -> int:
    n = 0
    for digest in chain.digests[1:]:
        if digest not in known:
            break
        n += BLOCK_TOKENS
    return n
