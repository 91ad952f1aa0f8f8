"""Measures the microseconds per token of llamad's sampler and of llama.cpp's chain, with one thread each, in turns.

The model is only used for its vocabulary; logits are random. It runs in this process.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from bench import programs
from llamad.engine.llama_log import LlamaLog
from llamad.engine.loading.model import load
from llamad.engine.loading.opening import Loading
from llamad.engine.testing.sampler_probe import SamplerProbe
from llamad.flags.parse import parse
from llamad.options.table import Options
from llamad.protocol.sampling_params import Sampling
from llamad.tokenizer.dry_breakers import pack_breakers
from llamad.tokenizer.vocab import Vocab

SIZES = (32_000, 49_152, 128_256, 262_144)
ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
CHAINS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("noise", {}),
    "greedy": ("noise", {"temperature": 0.0}),
    "penalties": ("noise", {"repeat_penalty": 1.1, "presence_penalty": 0.5}),
    "DRY": ("noise", {"dry_multiplier": 0.8}),
    "penalties and DRY": ("noise", {"repeat_penalty": 1.1, "dry_multiplier": 0.8}),
    "top_k off": ("peaked", {"top_k": 0}),
    "top_k off, noise": ("noise", {"top_k": 0}),
}
BREAKERS = [b"\n", b":"]


def logits(kind: str, n_vocab: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a row of logits. noise: normal, nearly flat. peaked: like a model's, a few tokens far above noise."""
    random = np.random.default_rng(1)
    row = random.standard_normal(n_vocab) * 3
    if kind == "peaked":
        row = row * 0.8 - 2
        likely = random.permutation(n_vocab)[:200]
        row[likely] = 19 - 1.6 * np.log1p(np.arange(200))
    # The row is aligned to a cache line, like llama.cpp's rows.
    room = np.empty(n_vocab + 16, dtype=np.float32)
    aligned = room[-room.ctypes.data // 4 % 16 :][:n_vocab]
    aligned[:] = row
    return aligned


def measure(
    vocab: Vocab, n_vocab: int, kind: str, values: dict[str, Any], n_picks: int, rounds: int
) -> tuple[float, float]:
    """Return the best rounds in µs: llamad's and llama.cpp's."""
    history = np.random.default_rng(2).integers(0, min(n_vocab, 32_000), 1024)
    row = logits(kind, n_vocab)
    best = {True: float("inf"), False: float("inf")}
    packed = pack_breakers(vocab, BREAKERS)
    for _ in range(rounds):
        for ours in (True, False):
            sampling = Sampling(ORDER, Options(dry_penalty_last_n=1024, **values), seed=1)
            sampler = SamplerProbe(
                vocab, sampling, n_vocab, bias=[], breakers=BREAKERS, ours=ours, packed=packed
            )
            for token in history:
                sampler.accept(int(token))
            sampler.repeat(row, 1)
            t_start = time.perf_counter()
            sampler.repeat(row, n_picks)
            best[ours] = min(best[ours], (time.perf_counter() - t_start) / n_picks * 1e6)
    return best[True], best[False]


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    parser.add_argument("--picks", type=int, default=200, help="tokens in a round (200)")
    parser.add_argument("--rounds", type=int, default=3)


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    LlamaLog()  # keeps llama.cpp's lines off the screen
    vocab = load(parse(["-m", flags.model, "-c", "256"], {}).settings.model, 1, Loading()).vocab
    print(f"{'chain':20} {'vocabulary':>10} {'llamad µs':>10} {'llama.cpp µs':>13} {'times':>6}")
    for name, (kind, values) in CHAINS.items():
        for n_vocab in SIZES:
            ours, theirs = measure(vocab, n_vocab, kind, values, flags.picks, flags.rounds)
            print(f"{name:20} {n_vocab:10,} {ours:10.1f} {theirs:13.1f} {theirs / ours:6.1f}", flush=True)
    return 0
