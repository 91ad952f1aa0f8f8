"""The field `echo` of /v1/completions: the prompt's text, and the logprobs of its tokens.

Runs on the event loop. The prompt is returned as it was sent, without the server's system prompt and BOS.
"""

from __future__ import annotations

from array import array
from typing import Any

from llamad.api.openai import objects
from llamad.client.events import TokenProbs
from llamad.options.values import SystemPrompt
from llamad.protocol.model_info import Model
from llamad.tokenizer.vocab import Vocab


class Echo:
    """The echo of one prompt, shared by its completions."""

    def __init__(self, sent: Any, tokens: bytes, system: SystemPrompt, model: Model, n_top: int) -> None:
        self.text = _text(sent, model.vocab)
        self.logprobs = objects.no_text_logprobs()
        self._vocab = model.vocab
        self._n_top = n_top
        self._offsets = objects.Offsets()
        self._n_seen = 1  # counts all tokens; the engine sends them from the second one on
        self._n_before = _n_before(sent, tokens, system, model)
        own = memoryview(tokens).cast("i")[self._n_before :]
        if len(own):
            self._take_first(own[0])

    def _take_first(self, token: int) -> None:
        """Add the first token, which has no logprob."""
        data = self._piece(token)
        if data.startswith(b" ") and not self.text.startswith(" "):
            data = data[1:]  # some vocabularies prefix texts with a space
        self.logprobs["tokens"].append(data.decode("utf-8", "replace"))
        self.logprobs["token_logprobs"].append(None)
        self.logprobs["top_logprobs"].append(None)
        self.logprobs["text_offset"].append(self._offsets.take(data))

    def _piece(self, token: int) -> bytes:
        return self._vocab.piece(token, True)

    def take(self, tokens: list[int], probs: list[TokenProbs]) -> None:
        """Add more tokens of the prompt, which the engine sent."""
        n_skip = min(len(tokens), max(0, self._n_before + 1 - self._n_seen))
        self._n_seen += len(tokens)
        objects.text_logprobs(
            self.logprobs, self._offsets, self._piece, tokens[n_skip:], probs[n_skip:], self._n_top, False
        )


def _text(sent: Any, vocab: Vocab) -> str:
    if isinstance(sent, str):
        return sent
    data = [
        one.encode("utf-8", "replace")
        if isinstance(one, str)
        else vocab.detokenize(array("i", [one]).tobytes(), True)
        for one in sent
    ]
    return b"".join(data).decode("utf-8", "replace")


def _n_before(sent: Any, tokens: bytes, system: SystemPrompt, model: Model) -> int:
    """Return the number of tokens before those of the prompt that the client sent."""
    if system.tokens:
        return system.n_tokens
    begins_with_text = isinstance(sent, str) or isinstance(sent[0], str)
    bos = array("i", [model.info.bos]).tobytes()
    has_bos = tokens.startswith(bos) and (model.info.add_bos or not sent)
    return 1 if begins_with_text and has_bos else 0
