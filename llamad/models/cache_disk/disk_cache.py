"""The prompt cache on disk of the whole daemon: what other layers use of it.

Made on the main thread before the daemon serves; used on the event loop. A request never fails because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from llamad.models.cache_disk.faults import Faults
from llamad.models.cache_disk.folder import Folder
from llamad.models.cache_disk.index import Found, Index
from llamad.models.cache_disk.prefixes import TOKEN_BYTES, Chain, Group
from llamad.models.cache_disk.reader import Fetched, Reader, Target
from llamad.models.cache_disk.source import Source
from llamad.models.cache_disk.turn_files import TurnFiles
from llamad.models.cache_disk.writer import TOKENS_MIN, Counts, Writer

log = logging.getLogger("llamad.cache")

# The time that computing a token takes, and the shortest wait, if neither the engine nor the entry knows better.
TOKEN_SECONDS = 0.001
FIRST_WAIT_SECONDS = 1.0
WAIT_SECONDS_MAX = 30.0


class Wanted(msgspec.Struct, frozen=True):
    """What a prompt should get before it is submitted, and how long it may wait for that."""

    found: Found
    chain: Chain
    prompt: bytes
    seconds: float


class DiskCache:
    """Raises FolderError if the folder cannot be used. `bytes_max` is the limit on all files; 0: none."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self.folder = Folder(path)
        self.folder.prepare()
        self.index = Index()
        self.counts = Counts()
        # Apart from each other: what is on a full disk can still be read.
        self.write_faults = Faults(f"--cache-disk {path} cannot be written")
        self.read_faults = Faults(f"--cache-disk {path} cannot be read")
        self.turns = TurnFiles(self.folder, bytes_max)
        self.writer = Writer(self.folder, self.index, self.turns, self.write_faults, self.counts, bytes_max)
        self.reader = Reader(self.folder, self.index, self.read_faults, self.counts, self.writer)
        self.writer.on_listed = self.reader.measure

    @property
    def n_entries(self) -> int:
        return self.index.n_prompts

    @property
    def n_faults(self) -> int:
        return self.write_faults.n_total + self.read_faults.n_total

    def start(self) -> None:
        """Begin to read the folder and to write entries."""
        self.writer.start()

    def find(self, source: Source, key_name: str, adapters: int, prompt: bytes) -> Wanted | None:
        """Return what would save the prompt enough tokens. If there is nothing, the prompt counts as submitted."""
        fingerprint = source.fingerprint
        if not fingerprint or len(prompt) < TOKENS_MIN * TOKEN_BYTES:
            return None
        chain = Chain(self.folder.salt, Group(fingerprint, self.folder.owner(key_name), adapters), prompt)
        n_known, longest = source.n_known(chain), self.index.find(chain)
        if longest is not None and longest.n_tokens >= n_known + TOKENS_MIN:
            token_seconds = source.token_seconds() or longest.blocks[-1].about.token_seconds
            seconds = _wait_seconds(longest.n_tokens - n_known, token_seconds)
            if self.reader.can_read(longest.n_bytes, seconds):
                return Wanted(longest, chain, prompt, seconds)
        source.note(chain)
        return None

    async def fetch(self, wanted: Wanted, target: Target) -> Fetched | None:
        """Return the state of what was found, or None if it cannot be read in time."""
        return await self.reader.fetch(wanted.found, wanted.prompt, target, wanted.seconds)

    async def fetch_parts(
        self, wanted: Wanted, target: Target, take: Callable[[Fetched], Awaitable[bool]]
    ) -> bool:
        """Give what was found to `take` block by block. Return whether all of it was read in time and taken."""
        return await self.reader.fetch_parts(wanted.found, wanted.prompt, target, wanted.seconds, take)

    async def finish(self, seconds: float) -> None:
        """Stop reading, and write what is not on disk yet, for at most this time. The threads end with the process."""
        self.reader.close()
        if not await asyncio.get_running_loop().run_in_executor(None, self.writer.flush, seconds):
            log.warning("--cache-disk: not all prompts could be written within %g s before the exit", seconds)


def _wait_seconds(n_tokens: int, token_seconds: float) -> float:
    """Return how long a prompt may wait for so many tokens: as long as computing them would take."""
    seconds = n_tokens * token_seconds or max(n_tokens * TOKEN_SECONDS, FIRST_WAIT_SECONDS)
    return min(seconds, WAIT_SECONDS_MAX)
