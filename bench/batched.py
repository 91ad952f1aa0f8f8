"""Runs llama-batched-bench, which only decodes, without sampling, text or clients: the upper bound for a server.

One process runs all rounds of a point.
"""

from __future__ import annotations

import argparse
import json
import subprocess

from bench.errors import BenchError
from bench.harness import Point
from bench.scenarios import server_args
from bench.stats import Measures


def measure(program: str, flags: argparse.Namespace, point: Point, n_streams: int) -> list[Measures]:
    sizes = ["-npp", str(flags.prompt_tokens), "-ntg", str(flags.predict)]
    rounds = ["-npl", ",".join([str(n_streams)] * flags.rounds), "--output-format", "jsonl"]
    threads = ["-t", str(flags.threads), "-tb", str(flags.threads)] if flags.threads else []
    n_ctx = point.options.n_ctx // point.options.n_slots * n_streams
    model = ["-m", str(flags.model), "-c", str(n_ctx)]
    command = [program, *model, *sizes, *rounds, *threads, *server_args(flags)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(f"{program} cannot be run ({error.strerror}): see --batched-bench") from None
    return measures(done.stdout, done.stderr)


def measures(output: str, errors: str) -> list[Measures]:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    if not lines:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        raise BenchError(f"llama-batched-bench gave no figures: {last}")
    speeds = ("decode_tokens_per_s", "steady_tokens_per_s")
    return [
        {
            **dict.fromkeys(speeds, float(one["speed_tg"])),
            "tokens_per_s": float(one["pl"] * one["tg"] / one["t"]),
        }
        for one in lines
    ]
