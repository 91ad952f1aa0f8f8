"""The turns that a model has generated, and the tokens that may close a message in its prompts.

prepare() runs in a thread before any request; everything else runs on any thread.
"""

from __future__ import annotations

from llamad.chat.host import ChatHost
from llamad.chat.replay.memory import TurnMemory
from llamad.chat.replay.spans import Closings, closing_text
from llamad.protocol.model_info import Model
from llamad.tokenizer.vocab import Vocab


class ModelTurns:
    """The memory of turns; they are tokens of one vocabulary, so another one empties it."""

    def __init__(self) -> None:
        self.memory = TurnMemory()
        self.closings = Closings((), ())
        self._vocab: Vocab | None = None

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
