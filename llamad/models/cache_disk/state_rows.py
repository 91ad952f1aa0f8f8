"""Cuts a state into the rows of which files are made, and joins rows to a state again.

All of it runs on worker threads: the work is long, and done without the GIL. Raises StateError for bytes that do not
fit the model's layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from llamad.models.cache_disk.prefixes import BLOCK_BYTES, BLOCK_TOKENS, TOKEN_BYTES, Chain, digest_after
from llamad.models.cache_disk.row_file import BLOCK, END, ENDINGS
from llamad.protocol.blobs import Arena, Blob
from llamad.protocol.cache_memory import Segment
from llamad.ses1 import ses1
from llamad.ses1.ses1 import Layout, StateError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_HEAD = struct.Struct("<4sI")  # of SES1: its name and the number of tokens


class Row(msgspec.Struct, frozen=True):
    """A row of a prompt: what its file is called, and where its tokens are."""

    kind: int
    before: bytes  # the digest of the whole blocks before its tokens
    begin: int
    tokens: bytes

    @property
    def digest(self) -> bytes:
        return digest_after(self.before, self.tokens)

    @property
    def name(self) -> str:
        return self.digest.hex() + ENDINGS[self.kind]

    @property
    def n_tokens(self) -> int:
        return self.begin + len(self.tokens) // TOKEN_BYTES


def rows_of(chain: Chain, *, has_end: bool) -> Iterator[Row]:
    """Yield the rows of a prompt, each behind those that it needs."""
    n_whole, rest = len(chain.digests) - 1, bytes(chain.behind(len(chain.digests) - 1))
    for i in range(n_whole):
        yield Row(
            BLOCK, chain.digests[i], i * BLOCK_TOKENS, bytes(chain.tokens[i * BLOCK_BYTES :][:BLOCK_BYTES])
        )
    if rest:
        yield Row(BLOCK, chain.digests[n_whole], n_whole * BLOCK_TOKENS, rest)
    if has_end:
        yield Row(END, chain.digests[n_whole], n_whole * BLOCK_TOKENS, rest)


def tokens_end(n_tokens: int) -> int:
    """Return where the tokens end in SES1."""
    return _HEAD.size + n_tokens * TOKEN_BYTES


def tokens_in(entry: memoryview, n_tokens: int) -> bytes:
    """Return the tokens of SES1 as int32 ids. Raises StateError if it is none with so many tokens."""
    if len(entry) < tokens_end(n_tokens) or _HEAD.unpack_from(entry) != (b"SES1", n_tokens):
        raise StateError("it has no tokens, or another number of them")
    return bytes(entry[_HEAD.size : tokens_end(n_tokens)])


def cut(layout: Layout, segments: Sequence[Segment], row: Row) -> bytes | memoryview:
    """Return the piece or the end that a row of a prompt has, which lies in these segments. Others may be left out."""
    if row.kind == END:
        last = segments[-1]
        return _state(last) if last.is_end else ses1.cut_end(layout, _state(last))
    if not layout.has_cells():
        return b""
    pieces = []
    for segment in segments:
        p0, p1 = max(segment.begin, row.begin), min(segment.n_tokens, row.n_tokens)
        if p0 < p1:
            pieces.append(ses1.cut(layout, _state(segment), p0, p1))
    return pieces[0] if len(pieces) == 1 else ses1.join(layout, pieces, None)


def _state(segment: Segment) -> memoryview:
    return segment.data[tokens_end(segment.n_tokens) :]


def write_head(blob: Blob, tokens: bytes) -> int:
    """Let the blob have SES1 of these tokens up to its state, and return where that begins."""
    n_tokens = len(tokens) // TOKEN_BYTES
    blob.size = at = tokens_end(n_tokens)
    with memoryview(blob) as view:
        _HEAD.pack_into(view, 0, b"SES1", n_tokens)
        view[_HEAD.size : at] = tokens
    return at


class Joining:
    """SES1 of these tokens while it is made of the pieces of its blocks, which come in any order, and the end. Threads
    may add pieces at once. Raises StateError, MemoryError."""

    def __init__(self, layout: Layout, tokens: bytes, end: Buffer | None, arena: Arena | None) -> None:
        self.n_tokens = len(tokens) // TOKEN_BYTES
        self._layout = layout
        self._end = end
        self._blob = Blob(tokens_end(self.n_tokens) + layout.bytes(self.n_tokens), arena)
        self._at = write_head(self._blob, tokens)
        self._n_state = 0

    def add(self, piece: Buffer, begin: int) -> None:
        """Add the piece of the block whose first token has the index `begin`. The last one may have more cells than
        there are tokens."""
        n, p1 = self.n_tokens, begin + BLOCK_TOKENS
        if p1 >= n:
            piece, p1 = ses1.cut(self._layout, piece, begin, n), n
        self._n_state = ses1.place(self._layout, piece, begin, p1, n, self._end, self._blob, self._at)

    def result(self) -> Blob:
        """Return the state, when all pieces have been added."""
        if not self._layout.has_cells():
            state = ses1.join(self._layout, [], self._end)
            self._n_state = len(state)
            self._blob.size = self._at + len(state)
            with memoryview(self._blob) as view:
                view[self._at :] = state
        self._blob.size = self._at + self._n_state
        return self._blob
