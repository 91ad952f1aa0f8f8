"""Microseconds a token: llamad's sampler beside llama.cpp's chain, one thread each, in turns.

`python -m bench.sampler` (the model gives the vocabulary only; logits are random). Measures, changes nothing.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from bench.errors import BenchError
from llamad.engine.llamalog import LlamaLog
from llamad.engine.model import Loading, load
from llamad.engine.picker import Picker
from llamad.engine.sampling import Sampling
from llamad.engine.vocab import Vocab
from llamad.flags import parse

SIZES = (32_000, 49_152, 128_256, 262_144)
ORDER = bytes(
    (1, 2, 3, 4, 5, 6, 7, 8, 9)
)  # penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature
NEUTRAL: dict[str, float] = {
    "seed": 1,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "typical_p": 1.0,
    "tfs_z": 1.0,
    "top_n_sigma": -1.0,
    "temperature": 0.8,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 1024,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "min_keep": 0,
}
CHAINS: dict[str, dict[str, float]] = {
    "default": {},
    "greedy": {"temperature": 0.0},
    "penalties": {"repeat_penalty": 1.1, "presence_penalty": 0.5},
    "penalties and DRY": {"repeat_penalty": 1.1, "dry_multiplier": 0.8},
    "top_k off": {"top_k": 0},
}


def measure(
    vocab: Vocab, n_vocab: int, values: dict[str, float], n_picks: int, rounds: int
) -> tuple[float, float, bool]:
    """The best round of each: (ours, llama.cpp's) in µs, and whether this chain is ours at all."""
    random = np.random.default_rng(1)
    row = (random.standard_normal(n_vocab) * 3).astype(np.float32)
    best = {True: float("inf"), False: float("inf")}
    is_ours = False
    for _ in range(rounds):
        for ours in (True, False):
            sampling = Sampling(ORDER, **{**NEUTRAL, **values})
            picker = Picker(vocab, sampling, n_vocab, bias=[], breakers=[b"\n", b":"], ours=ours)
            is_ours = is_ours or picker.is_ours
            for token in random.integers(0, min(n_vocab, 32_000), 1024):
                picker.accept(int(token))
            t_start = time.perf_counter()
            picker.repeat(row, n_picks)
            best[ours] = min(best[ours], (time.perf_counter() - t_start) / n_picks * 1e6)
    return best[True], best[False], is_ours


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sampler", description=__doc__)
    parser.add_argument("--model", default=os.environ.get("LLAMAD_TEST_MODEL"))
    parser.add_argument("--picks", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    if not flags.model:
        raise BenchError("which model? give --model, or run it through make, which sets LLAMAD_TEST_MODEL")
    LlamaLog()  # keeps llama.cpp's lines off the screen
    vocab = load(parse(["-m", flags.model, "-c", "256"], {}).settings, 1, Loading()).vocab
    print(f"{'chain':20} {'vocabulary':>10} {'llamad µs':>10} {'llama.cpp µs':>13} {'times':>6}")
    for name, values in CHAINS.items():
        for n_vocab in SIZES:
            ours, theirs, is_ours = measure(vocab, n_vocab, values, flags.picks, flags.rounds)
            note = "" if is_ours else "  (llama.cpp's chain on both sides)"
            print(
                f"{name:20} {n_vocab:10,} {ours:10.1f} {theirs:13.1f} {theirs / ours:6.1f}{note}", flush=True
            )


if __name__ == "__main__":
    main()
