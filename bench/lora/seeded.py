"""Writes adapters with random weights for a model, all different; speed does not depend on the weights.

Each changes every attention and feed-forward matrix a little, so that the generated texts differ but stay sensible.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.errors import BenchError
from bench.lora import adapter_file
from bench.lora.adapter_file import Weights


def pairs(
    shapes: dict[str, tuple[int, int]], rank: int, strength: float, seed: int
) -> Iterator[tuple[str, Weights, Weights]]:
    """Yield the pairs. With alpha = rank, B A has `strength` times the usual deviation of matrices, 1/sqrt(columns)."""
    random = np.random.default_rng(seed)
    for name, (rows, columns) in shapes.items():
        a = random.standard_normal((rank, columns), dtype=np.float32) / np.float32(columns**0.5)
        b = random.standard_normal((rows, rank), dtype=np.float32) * np.float32(strength / rank**0.5)
        yield name, a.astype(np.float16), b.astype(np.float16)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", type=Path, required=True, help="the GGUF of the model")
    add("--out", type=Path, required=True, help="the folder for lora-0.gguf, lora-1.gguf, ...")
    add("--rank", type=int, default=16)
    add("--count", type=int, default=4)
    add("--strength", type=float, default=0.1, help="strength of the change, relative to the weights (0.1)")
    add("--seed", type=int, default=1)


def main(flags: argparse.Namespace) -> int:
    if flags.rank < 1 or flags.count < 1:
        raise BenchError("--rank and --count must be at least 1")
    arch, shapes = adapter_file.architecture(flags.model), adapter_file.shapes(flags.model)
    for i in range(flags.count):
        path = flags.out / f"lora-{i}.gguf"
        made = pairs(shapes, flags.rank, flags.strength, flags.seed + i)
        adapter_file.write(path, arch, float(flags.rank), made)
        print(f"{path}: rank {flags.rank}, {len(shapes)} matrices, {path.stat().st_size:,} bytes")
    return 0
