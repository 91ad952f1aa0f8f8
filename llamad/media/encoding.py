"""Owns what an image or a sound has become: pieces of a prompt, and the memory with their rows."""

from __future__ import annotations

from array import array

import msgspec

from llamad.media.messages import Piece
from llamad.protocol.blobs import Blob
from llamad.protocol.row_ids import row_ids


class Encoding(msgspec.Struct, frozen=True, eq=False):
    """Immutable; shared by all prompts that hold the same file."""

    digest: bytes
    pieces: list[Piece]
    rows: Blob  # of all pieces, then the positions of those that are grids
    n_row: int  # floats of a row

    @property
    def n_tokens(self) -> int:
        return sum(piece.n_tokens for piece in self.pieces)

    @property
    def n_rows(self) -> int:
        return sum(piece.n_tokens for piece in self.pieces if not piece.tokens)

    def tokens(self) -> bytes:
        """Its part of a prompt, as int32: tokens, and ids that stand for rows."""
        parts = []
        for i, piece in enumerate(self.pieces):
            if piece.tokens:
                parts.append(array("i", piece.tokens).tobytes())
            else:
                parts.append(row_ids(self.digest, i, piece.n_tokens, piece.n_pos, piece.is_non_causal))
        return b"".join(parts)
