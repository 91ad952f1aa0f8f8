"""Weights with which a token is always followed by the same one, for pairs of a model and a draft model.

The layers compute as usual but hardly change what passes them, and the output's row of a token is the embedding of the
token before it. All such models of a vocabulary have the same successors, but for the share that a draft is to miss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

ORDER = 20  # seed of the successors that all models have
LAYER_PART = 1e-3  # of what a layer adds to its input, as a part of the input

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def successors(n_vocab: int, share: float, seed: int) -> Numbers:
    """Return which token follows each: all tokens in one circle. `share` of them have the one that all models have."""
    circle = np.random.default_rng(ORDER).permutation(n_vocab)
    follower = np.empty(n_vocab, np.int64)
    follower[circle] = np.roll(circle, -1)
    wrong = np.flatnonzero(np.random.default_rng(seed).random(n_vocab) >= share)
    follower[wrong] = np.roll(follower[wrong], 1)
    return follower


def rows(n_vocab: int, n_starts: int, share: float, seed: int) -> tuple[Numbers, Numbers]:
    """Return where in a pool of random values the rows of the embedding and of the output begin."""
    embedding = np.random.default_rng(seed).choice(n_starts, n_vocab, replace=False)
    output = np.empty_like(embedding)
    output[successors(n_vocab, share, seed)] = embedding
    return embedding, output


def chunks(pool: np.ndarray[Any, np.dtype[np.uint8]], starts: Numbers, n_bytes: int) -> Iterator[memoryview]:
    """Yield the rows of a matrix, n_bytes each."""
    for start in starts:
        yield pool[start : start + n_bytes].data


def deviation(name: str, columns: int) -> float:
    """Return the standard deviation of a matrix's values."""
    if name == "token_embd.weight":
        return 1.0
    part = LAYER_PART if name.endswith(("attn_output.weight", "ffn_down.weight")) else 1.0
    return part / math.sqrt(columns)
