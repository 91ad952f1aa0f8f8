"""A prompt of texts and of turns that the server has generated, whose tokens it knows.

Any thread; tokenizing releases the GIL.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from llamad.api.request.prompt import Built
from llamad.api.request.text_limits import limited
from llamad.chat.replay.memory import Turn
from llamad.protocol.model_info import Model


class ReplayedPrompt(Built):
    """Texts and turns in their order; a text comes first."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[bytes | Turn]) -> None:
        self._pieces = pieces

    @property
    def n_chars(self) -> int:
        return sum(len(piece) if isinstance(piece, bytes) else 1 for piece in self._pieces)

    def tokens(self, model: Model, system: bytes) -> bytes:
        made = []
        for i, piece in enumerate(self._pieces):
            if isinstance(piece, Turn):
                made.append(piece.tokens)
            else:
                made.append(limited(piece, i == 0 and not system, model))
        tokens = b"".join(made)
        bos = array("i", [model.info.bos]).tobytes()
        if system and model.info.add_bos and tokens.startswith(bos):
            tokens = tokens[len(bos) :]
        return system + tokens
