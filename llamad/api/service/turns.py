"""The turns that a model has generated, in memory and on disk, and the tokens that may close a message in its prompts.

prepare() runs in a thread before any request; everything else runs on any thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from llamad.chat.host import ChatHost
from llamad.chat.replay.memory import SAME_MAX, Turn, TurnMemory
from llamad.chat.replay.spans import Closings, closing_text
from llamad.models.disk_turns import DiskTurns
from llamad.protocol.model_info import Model
from llamad.tokenizer.vocab import Vocab

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Turn).decode


class ModelTurns:
    """The memory of turns; they are tokens of one vocabulary, so another one empties it. `disk` keeps them, too."""

    def __init__(self, disk: DiskTurns | None) -> None:
        self._disk = disk
        self.memory = TurnMemory(store=None if disk is None else self)
        self.closings = Closings((), ())
        self._vocab: Vocab | None = None

    def keep(self, key: str, names: Sequence[bytes | str], turn: Turn) -> None:
        """Keep a turn on disk."""
        assert self._disk is not None
        data = _encode(msgspec.structs.replace(turn, tokens=b""))
        self._disk.keep(key, [_place(name) for name in names], turn.tokens, data)

    def find(self, key: str, name: bytes | str) -> tuple[Turn, ...]:
        """Return the turns on disk that were kept under this name."""
        assert self._disk is not None
        turns = []
        for answer in self._disk.find(key, _place(name))[:SAME_MAX]:
            try:
                turn = msgspec.structs.replace(_decode(answer.data), tokens=answer.tokens)
            except msgspec.MsgspecError:
                continue  # another version has written it
            if self._has(turn.tokens):
                turns.append(turn)
        return tuple(turns)

    def _has(self, tokens: bytes) -> bool:
        """Whether the vocabulary has all these tokens."""
        ids = array("i", tokens)
        return self._vocab is not None and min(ids) >= 0 and max(ids) < self._vocab.n_vocab

    def prepare(self, model: Model, chat: ChatHost) -> None:
        vocab = model.vocab
        if self._vocab is not vocab:
            self.memory.forget()
        self._vocab = vocab
        ids = set(vocab.eog_tokens())
        ends = [vocab.piece(one, True).decode("utf-8", "replace") for one in ids]
        for host in (chat, chat.serving(True)):
            closing = closing_text(host.closing, ends).encode()
            tokens = memoryview(vocab.tokenize(closing, False, True)).cast("i").tolist() if closing else []
            ids.update(tokens if len(tokens) == 1 else ())
        self.closings = Closings([vocab.piece(one, True) for one in ids], ids)


def _place(name: bytes | str) -> bytes:
    return b"digest/" + name if isinstance(name, bytes) else b"id/" + name.encode("utf-8", "replace")
