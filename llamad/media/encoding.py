"""The encoding of an image or a sound: pieces of a prompt, and the memory with their embeddings."""

from __future__ import annotations

from array import array

import msgspec

from llamad.media.messages import Piece
from llamad.protocol.blobs import Blob
from llamad.protocol.row_ids import row_ids


class Encoding(msgspec.Struct, frozen=True, eq=False):
    """An encoded file. It is immutable and shared by all prompts that contain the file."""

    digest: bytes
    pieces: list[Piece]
    rows: Blob  # the embeddings of all pieces, then the positions of those that are grids
    n_row: int  # floats of one embedding

    @property
    def n_tokens(self) -> int:
        return sum(piece.n_tokens for piece in self.pieces)

    @property
    def n_rows(self) -> int:
        return sum(piece.n_tokens for piece in self.pieces if not piece.tokens)

    def tokens(self) -> bytes:
        """Return its tokens in a prompt, as int32: text tokens, and ids that stand for embeddings."""
        runs = []
        for i, piece in enumerate(self.pieces):
            if piece.tokens:
                runs.append(array("i", piece.tokens).tobytes())
            else:
                runs.append(row_ids(self.digest, i, piece.n_tokens, piece.n_pos, piece.is_non_causal))
        return b"".join(runs)
