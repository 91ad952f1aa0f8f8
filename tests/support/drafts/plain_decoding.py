"""The oracle of drafts: llama.cpp itself decodes one token after the other, in a context with one sequence."""

from __future__ import annotations

import numpy as np

from support.models.tiny_contexts import Sizes, TinyContext, TinyModel
from support.models.tiny_kv_models import EOS, N_VOCAB

N_BATCH = 512
# Logits depend on the shapes in which they are computed: more if the cache is quantized, because rounding then changes
# what is stored.
TIES = {"f32": 1e-2, "q8_0": 0.2, "q4_0": 0.5}


class PlainDecoding:
    """Greedy texts, and the states that they leave. `cache` is the type of keys and values."""

    def __init__(self, model: TinyModel, cache: str, n_ctx: int) -> None:
        sizes = Sizes(n_ctx, 1, N_BATCH, N_BATCH, unified=False, swa_full=False)
        self._context = TinyContext(model, sizes, cache, flash=cache != "f32")
        self._tie = TIES[cache]
        self._n = 0  # tokens that the sequence holds

    def close(self) -> None:
        self._context.__exit__()

    def _decode(self, tokens: list[int]) -> np.ndarray:
        batch = [(0, self._n + i, token) for i, token in enumerate(tokens)]
        assert self._context.driver.decode(batch) == 0
        self._n += len(tokens)
        return np.array(self._context.driver.logits(N_VOCAB))

    def write(self, prompt: list[int], n_predict: int) -> list[int]:
        """Return the tokens that follow the prompt. The sequence then holds all but the last."""
        return self._follow(prompt, n_predict, [])

    def is_text(self, prompt: list[int], text: list[int], n_predict: int) -> bool:
        """Return whether this could be the text: it is, or rounding decided between two tokens. The sequence then
        holds all but the last of it."""
        return self._follow(prompt, n_predict, text) == text

    def _follow(self, prompt: list[int], n_predict: int, text: list[int]) -> list[int]:
        """Return the tokens that follow the prompt, taking those of `text` where they are as likely as any."""
        self._context.driver.seq_rm(0, -1, -1)
        self._n = 0
        logits, tokens = self._decode(prompt), list[int]()
        while True:
            tokens.append(int(logits.argmax()))
            if len(tokens) <= len(text) and logits.max() - logits[text[len(tokens) - 1]] < self._tie:
                tokens[-1] = text[len(tokens) - 1]
            if len(tokens) == n_predict or tokens[-1] == EOS:
                return tokens
            logits = self._decode(tokens[-1:])

    def state(self) -> bytes:
        """Return the state of the sequence."""
        return self._context.driver.save(0, 0)
