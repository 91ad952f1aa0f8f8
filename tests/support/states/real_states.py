"""Sequences of tiny models in contexts of this process: their states, layouts and logits."""

from __future__ import annotations

import random

import numpy as np

from llamad.ses1.ses1 import Layout
from support.models.tiny_contexts import TinyContext
from support.models.tiny_kv_models import N_VOCAB, WINDOW

N_BATCH = 32


def text(n: int, seed: int = 1) -> list[int]:
    """Return random tokens."""
    chance = random.Random(seed)
    return [chance.randrange(3, N_VOCAB) for _ in range(n)]


def prefill(context: TinyContext, seq: int, tokens: list[int], first: int = 0) -> None:
    for i in range(0, len(tokens), N_BATCH):
        batch = [(seq, first + i + k, token) for k, token in enumerate(tokens[i : i + N_BATCH])]
        assert context.driver.decode(batch) == 0


def continued(context: TinyContext, seq: int, n_past: int, n: int = 4) -> np.ndarray:
    """Return the logits of the next tokens, which are decoded one by one."""
    rows = []
    for i, token in enumerate(text(n, seed=2)):
        assert context.driver.decode([(seq, n_past + i, token)]) == 0
        rows.append(context.driver.logits(N_VOCAB))
    return np.array(rows)


def learned(context: TinyContext, seq: int = 0) -> Layout:
    """Return the layout of this context's states, from an empty sequence, which is empty again afterwards."""
    states = []
    for n in (1, 2):
        prefill(context, seq, [7] * n)
        states.append(context.driver.save(seq, 0))
        assert context.driver.seq_rm(seq, -1, -1)
    return Layout(states[0], states[1], WINDOW)
