"""The index of the files on disk: which there are, what they have of a prompt, and which of them go first.

Any thread. The event loop only looks up keys of dictionaries, and never waits: the lock is for those who change them.
Must not touch the disk. A file is a node of a tree: a block lies under the digest of the blocks before it.
"""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from llamad.models.cache_disk.prefixes import BLOCK_TOKENS, TOKEN_BYTES, Chain, n_common
from llamad.models.cache_disk.row_file import BLOCK, Description
from llamad.protocol.prompt_value import value

# A use after this time is a return; earlier ones may belong to the request that has made the file.
RETURN_SECONDS = 1.0
# Fewer tokens of a block, up to which it agrees with a prompt, are not worth reading it.
PART_MIN = 16
BRANCHES_MAX = 256  # so many blocks are compared with a prompt, the last that were added


class Stored(msgspec.Struct, eq=False):
    """One file. `about` has no more bytes than a block's tokens."""

    name: str
    about: Description
    n_bytes: int  # of the file
    used: float  # seconds since the epoch
    digest: bytes
    retention_s: int = 0
    n_returns: int = 0
    is_named: bool = False
    noted: float = 0.0  # the time of use that the file itself has

    @property
    def is_end(self) -> bool:
        return self.about.kind != BLOCK

    @property
    def n_tokens(self) -> int:
        return self.about.n_tokens


def stored(about: Description, n_bytes: int, used: float) -> Stored:
    """Return the index's view of a file."""
    return Stored(
        about.name,
        about,
        n_bytes,
        used,
        about.digest,
        about.retention_s,
        about.n_returns + (used > about.created + RETURN_SECONDS),
        about.is_named,
        used,
    )


class Found(msgspec.Struct, frozen=True):
    """What the disk has of a prompt: its blocks from the first on, the end that they need, and how many of the prompt's
    tokens can be used with them."""

    blocks: list[Stored]
    end: Stored | None
    n_tokens: int

    @property
    def files(self) -> list[Stored]:
        return self.blocks if self.end is None else [*self.blocks, self.end]

    @property
    def name(self) -> str:
        """The same for prompts that need the same files."""
        return self.files[-1].name

    @property
    def n_bytes(self) -> int:
        return sum(one.n_bytes for one in self.files)


class Index:
    """`n_bytes` is the size of all files together, `n_prompts` the number of blocks that have none behind them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_name: dict[str, Stored] = {}
        self._blocks: dict[bytes, Stored] = {}  # by their digests
        # What lies behind whole blocks with a digest, by name.
        self._blocks_behind: dict[bytes, dict[str, Stored]] = {}
        self._ends_behind: dict[bytes, dict[str, Stored]] = {}
        self.n_bytes = 0
        self.n_prompts = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def is_last(self, one: Stored) -> bool:
        """Return whether a block has no block behind it."""
        return not one.is_end and one.digest not in self._blocks_behind

    def _is_last(self, digest: bytes) -> bool:
        """Return whether there is a block with this digest and none behind it."""
        return digest in self._blocks and digest not in self._blocks_behind

    def lasts(self) -> list[Stored]:
        """Return the last block of each prompt."""
        return [one for one in list(self._blocks.values()) if self.is_last(one)]

    def before(self, one: Stored) -> Stored | None:
        """Return the block before a file; None if it is the first, or if it is missing."""
        return self._blocks.get(one.about.before)

    def ends_in(self, block: Stored) -> list[Stored]:
        """Return the ends that lie in a block."""
        ends = self._ends_behind.get(block.about.before, {}).values()
        own = [one for one in list(ends) if block.about.tokens.startswith(one.about.tokens)]
        return own + list(self._ends_behind.get(block.digest, {}).values())

    def names(self) -> set[str]:
        return set(list(self._by_name))

    def all(self) -> list[Stored]:
        return list(self._by_name.values())

    def get(self, name: str) -> Stored | None:
        return self._by_name.get(name)

    def add(self, one: Stored) -> None:
        """Add a file, or replace the one of this name."""
        with self._lock:
            self._remove(one.name)
            self._by_name[one.name] = one
            self.n_bytes += one.n_bytes
            if one.is_end:
                self._ends_behind.setdefault(one.about.before, {})[one.name] = one
                return
            self.n_prompts -= self._is_last(one.about.before)
            self._blocks_behind.setdefault(one.about.before, {})[one.name] = one
            self._blocks[one.digest] = one
            self.n_prompts += self._is_last(one.digest)

    def remove(self, name: str) -> None:
        """Forget a file, if it is known."""
        with self._lock:
            self._remove(name)

    def _remove(self, name: str) -> None:
        one = self._by_name.pop(name, None)
        if one is None:
            return
        self.n_bytes -= one.n_bytes
        if not one.is_end:
            self.n_prompts -= self._is_last(one.digest)
            del self._blocks[one.digest]
        behind = self._ends_behind if one.is_end else self._blocks_behind
        siblings = behind[one.about.before]
        del siblings[name]
        if not siblings:
            del behind[one.about.before]
            self.n_prompts += not one.is_end and self._is_last(one.about.before)

    # Finding. Without the lock: each line looks at a dictionary once.

    def _behind(self, digest: bytes) -> list[Stored]:
        siblings = self._blocks_behind.get(digest)
        return list(siblings.values())[-BRANCHES_MAX:] if siblings else []

    def find(self, chain: Chain) -> Found | None:
        """Return what there is of the prompt, or None. Its last token is always computed."""
        blocks: list[Stored] = []
        for digest in chain.digests[1:]:
            one = self._blocks.get(digest)
            if one is None:
                break
            blocks.append(one)
        n_whole, rest = len(blocks), chain.behind(len(blocks))
        n_part = 0
        for one in self._behind(chain.digests[n_whole]):
            n = n_common(one.about.tokens, rest)
            if n > n_part:
                n_part, blocks[n_whole:] = n, [one]
        if blocks and blocks[-1].about.needs_ends:
            return self._up_to_an_end(chain, blocks, n_whole, n_part)
        if n_part < PART_MIN:
            n_part, blocks = 0, blocks[:n_whole]
        n_tokens = min(n_whole * BLOCK_TOKENS + n_part, chain.n_tokens - 1)
        return Found(blocks, None, n_tokens) if blocks else None

    def _up_to_an_end(self, chain: Chain, blocks: list[Stored], n_whole: int, n_part: int) -> Found | None:
        """Return the blocks up to the last end that the prompt has."""
        for n_before in range(n_whole, -1, -1):
            best: Stored | None = None
            rest = chain.behind(n_before)
            n_usable = min(BLOCK_TOKENS if n_before < n_whole else n_part, len(rest) // TOKEN_BYTES)
            for end in list(self._ends_behind.get(chain.digests[n_before], {}).values()):
                n = end.n_tokens - end.about.begin
                is_there = n <= n_usable and rest[: n * TOKEN_BYTES] == end.about.tokens
                if (
                    is_there
                    and end.n_tokens < chain.n_tokens
                    and (best is None or end.n_tokens > best.n_tokens)
                ):
                    best = end
            if best is not None and best.n_tokens > 0:
                n_blocks = -(-best.n_tokens // BLOCK_TOKENS)
                return Found(blocks[:n_blocks], best, best.n_tokens)
        return None

    # What stays.

    def superseded(self, about: Description) -> list[Stored]:
        """Return the shorter blocks that this longer one begins with: a conversation that has grown needs them no
        more."""
        return [
            one
            for one in self._behind(about.before)
            if len(one.about.tokens) < len(about.tokens) and about.tokens.startswith(one.about.tokens)
        ]

    def orphans(self) -> set[str]:
        """Return the names of files that lack a block somewhere before them, so that nothing can use them."""
        there: set[bytes] = set()
        orphans: set[str] = set()
        for one in sorted(self.all(), key=lambda one: one.about.begin):
            if one.about.begin and one.about.before not in there:
                orphans.add(one.name)
            elif not one.is_end:
                there.add(one.digest)
        return orphans

    def to_remove(
        self,
        n_bytes: int,
        now: float,
        *,
        bytes_max: int = 0,
        worth: float = float("inf"),
        kept: Iterable[str] = (),
    ) -> list[Stored] | None:
        """Return the files with the smallest values that together have at least n_bytes, the ends of prompts first; all
        if that is not enough. `worth` is the value of a new file that needs the room: return None if it is worth less
        than one of them. `kept` are the names of blocks that it needs. `bytes_max` is shared by the keys, as far as
        hints count."""
        if n_bytes <= 0:
            return []
        tree = _Tree(self.all(), now, bytes_max, set(kept))
        removed: list[Stored] = []
        while n_bytes > 0 and tree.heap:
            least, one = tree.pop()
            if least > worth:
                return None
            removed.append(one)
            n_bytes -= one.n_bytes
        return removed if n_bytes <= 0 or worth == float("inf") else None


class _Tree:
    """A copy of the index from which files are taken away, the least valuable first, and never one that others need."""

    def __init__(self, files: list[Stored], now: float, bytes_max: int, kept: set[str]) -> None:
        self._now = now
        self._kept = kept
        self._blocks = {one.digest: one for one in files if not one.is_end}
        self._n_behind: dict[bytes, int] = defaultdict(int)  # files that need the block with this digest
        self._bearers: dict[str, list[Stored]] = {}  # the blocks that an end needs, by its name
        self._n_ends: dict[str, int] = defaultdict(int)  # the ends within a block, by its name
        behind: dict[bytes, list[Stored]] = defaultdict(list)
        for one in files:
            if one.about.begin:
                self._n_behind[one.about.before] += 1
            if not one.is_end:
                behind[one.about.before].append(one)
        for siblings in behind.values():
            siblings.sort(key=_tokens)
        for one in files:
            if one.is_end:
                self._bearers[one.name] = bearers = _beginning_with(
                    one.about.tokens, behind[one.about.before]
                )
                for block in bearers:
                    self._n_ends[block.name] += 1
        self._hints = _hint_shares(files, bytes_max)
        self.heap = [(self._value(one), one.used, one.name, one) for one in files if self._is_free(one)]
        heapq.heapify(self.heap)

    def _is_free(self, one: Stored) -> bool:
        """Return whether no other file needs it."""
        if one.name in self._kept:
            return False
        return one.is_end or (self._n_behind[one.digest] == 0 and self._n_ends[one.name] == 0)

    def _value(self, one: Stored) -> float:
        if one.is_end:
            n_own = one.n_tokens
            bearers = self._bearers[one.name]
            is_superseded = any(
                self._n_behind[block.digest] or self._n_ends[block.name] > 1 for block in bearers
            )
        else:
            n_own = one.n_tokens - one.about.begin
            is_superseded = one.about.needs_ends  # no end is left that could use it
        return value_of(
            one, self._now, n_own, is_superseded=is_superseded, has_hints=self._hints[one.about.group.owner]
        )

    def pop(self) -> tuple[float, Stored]:
        least, _, _, one = heapq.heappop(self.heap)
        if one.about.begin:
            self._n_behind[one.about.before] -= 1
            self._push(self._blocks.get(one.about.before))
        for block in self._bearers.get(one.name, ()):
            self._n_ends[block.name] -= 1
            self._push(block)
        return least, one

    def _push(self, one: Stored | None) -> None:
        if one is not None and self._is_free(one):
            heapq.heappush(self.heap, (self._value(one), one.used, one.name, one))


def _tokens(one: Stored) -> bytes:
    return one.about.tokens


def _beginning_with(tokens: bytes, blocks: list[Stored]) -> list[Stored]:
    """Return those of the blocks, which are sorted by their tokens, that begin with these tokens."""
    first = last = bisect_left(blocks, tokens, key=_tokens)
    while last < len(blocks) and blocks[last].about.tokens.startswith(tokens):
        last += 1
    return blocks[first:last]


def _hint_shares(files: list[Stored], bytes_max: int) -> dict[str, bool]:
    """Return for each owner whether its hints count: as long as what they are about has no more than the owner's share
    of the limit."""
    hinted: dict[str, int] = defaultdict(int)
    for one in files:
        hinted[one.about.group.owner] += one.n_bytes if one.is_named or one.retention_s > 0 else 0
    return {owner: not bytes_max or n * len(hinted) <= bytes_max for owner, n in hinted.items()}


def value_of(
    one: Stored,
    now: float,
    n_own: int,
    *,
    n_end: int = 0,
    is_superseded: bool = False,
    has_hints: bool = True,
) -> float:
    """Return the value of a file that has n_own tokens itself, in a prompt of n_end tokens, if that is known."""
    return value(
        n_end=max(n_end, one.n_tokens),
        n_tokens=n_own,
        n_bytes=one.n_bytes,
        idle_s=now - one.used,
        n_returns=one.n_returns,
        retention_s=one.retention_s if has_hints else min(one.retention_s, 0),
        is_named=one.is_named and has_hints,
        is_superseded=is_superseded,
    )
