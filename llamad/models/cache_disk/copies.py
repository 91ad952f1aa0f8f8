"""Copies of a prompt's entries in a cache memory, a few at a time: an engine may change or drop the originals.

The writer's thread. All entries of a long prompt are gigabytes, which no limit counts. An entry is pinned only while it
is copied, so that no engine waits for the disk.
"""

from __future__ import annotations

from llamad.models.cache_disk.row_file import END
from llamad.models.cache_disk.source import Source
from llamad.models.cache_disk.state_rows import Row, tokens_in
from llamad.protocol.blobs import Blob
from llamad.protocol.cache_memory import EntryInfo, Segment, checksum
from llamad.ses1.ses1 import Layout, StateError

# Copied for one row and those behind it, unless a single entry is larger. Chosen.
BYTES_MAX = 64 << 20
# Copied without a pause, with the GIL: more would stall the event loop.
PIECE_BYTES = 1 << 20


class Gone(Exception):
    """An entry of the prompt is not in the cache memory any more."""


class Copies:
    """The tokens of one prompt, and copies of its entries. Raises Gone, MemoryError, and StateError if an engine has
    gone wrong. `fingerprint` is that of the source when the entry was found."""

    def __init__(self, source: Source, layout: Layout, fingerprint: str, info: EntryInfo) -> None:
        self._source = source
        self._fingerprint = fingerprint
        self._info = info
        self._tokens_max = max(1, BYTES_MAX * info.n_tokens // max(1, layout.bytes(info.n_tokens)))
        self._segments: list[Segment] = []
        self._has_last = False  # the last entry is copied, which has the prompt's end
        self.tokens = self._read_tokens()

    def of(self, row: Row) -> list[Segment]:
        """Return verified copies of the entries that a row needs, and of some behind them. The rows of a prompt come in
        their order."""
        if not self._have(row):
            self._segments = []  # before others are copied
            self._copy(row)
        return self._segments

    def _have(self, row: Row) -> bool:
        if row.kind == END:
            return self._has_last
        return any(one.begin <= row.begin for one in self._segments) and any(
            row.n_tokens <= one.n_tokens for one in self._segments if not one.is_end
        )

    def _copy(self, row: Row) -> None:
        begin, end = row.begin, max(row.n_tokens, row.begin + self._tokens_max)
        segments = self._pin(begin, end)
        try:
            needed = [one for one in segments if one.begin < end and begin < one.n_tokens and not one.is_end]
            if row.kind == END:
                needed = segments[-1:]
            copies = [one._replace(data=_copied(one.data)) for one in needed]
        finally:
            self._unpin(segments)
        for one in copies:
            if checksum(one.data) != one.checksum:
                raise StateError("its checksum is wrong")
            if not _are_of_one(self.tokens, tokens_in(one.data, one.n_tokens)):
                raise StateError("its entries have different tokens")
        self._segments = copies
        self._has_last = bool(needed) and needed[-1] is segments[-1]

    def _read_tokens(self) -> bytes:
        n = self._info.n_tokens
        segments = self._pin(n, n)
        try:
            return tokens_in(segments[-1].data, n)
        finally:
            self._unpin(segments)

    def _pin(self, begin: int, end: int) -> list[Segment]:
        """Pin the entries with these cells, and the last one."""
        segments = self._source.memory.pin(self._info.id, begin, end)
        if segments is None:
            raise Gone
        return segments

    def _unpin(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.data.release()
        self._source.memory.unpin(self._info.id)
        if self._source.fingerprint != self._fingerprint:
            raise Gone  # another engine has begun: the entry may be one of its own


def _are_of_one(tokens: bytes, part: bytes) -> bool:
    """Return whether these are the tokens of a prompt and of one of its parts, which may have more of them."""
    return tokens.startswith(part) or part.startswith(tokens)


def _copied(view: memoryview) -> memoryview:
    blob = Blob(len(view))
    blob.size = len(view)
    copy = memoryview(blob)
    for at in range(0, len(view), PIECE_BYTES):
        copy[at : at + PIECE_BYTES] = view[at : at + PIECE_BYTES]
    return copy
