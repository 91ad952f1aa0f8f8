"""`python -m bench grammar --beside ENGINES`: all engines on the same schemas and texts, and a table of each measure.

Engines take turns at each schema, one at work at a time. Times are of the schemas that all compile and of the texts
that all allow; the counts of refusals and disagreements are of everything.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from bench.micro.llama_grammar import Words
from bench.micro.recipe import path_of
from bench.schemas import corpus
from bench.schemas.engines import ENGINES, check_installed, version
from bench.schemas.instances import instances
from bench.schemas.worker import Measured, Worker
from llamad.engine.llama_log import LlamaLog

N_TEXTS = 3

Results = dict[str, dict[str, Measured]]  # by schema, then by engine


def percentiles(values: list[float], *points: float) -> list[str]:
    """Return percentiles with three digits, and a dash for each if there are no values."""
    if not values:
        return ["–"] * len(points)
    numbers = [float(np.percentile(values, point)) for point in points]
    return [f"{number:,.0f}" if number >= 100 else f"{number:.3g}" for number in numbers]


def table(title: str, columns: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {title} | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def measured_all(names: list[str], vocab: str, limit: int, seconds: float) -> Results:
    words = Words(vocab)
    workers = [Worker(name, vocab, seconds) for name in names]
    results: Results = {}
    t_told = time.monotonic()
    all_schemas = corpus.schemas(limit)
    for i, (name, schema) in enumerate(all_schemas):
        texts = [
            list(memoryview(words.vocab.tokenize(text.encode(), False, False)).cast("i"))
            for text in instances(schema, N_TEXTS)
        ]
        order = workers if i % 2 else workers[::-1]
        results[name] = {worker.name: worker.measure(schema, texts) for worker in order}
        if time.monotonic() > t_told + 20:
            t_told = time.monotonic()
            print(f"{i + 1} of {len(all_schemas)} schemas", file=sys.stderr, flush=True)
    for worker in workers:
        worker.close()
    return results


def compile_table(names: list[str], results: Results) -> str:
    common = [one for one in results.values() if all(one[name].is_compiled for name in names)]
    rows = []
    for name in names:
        mine = [one[name] for one in results.values()]
        n_strict = str(sum(bool(one.refused_strictly) for one in mine)) if ENGINES[name].has_strict else "–"
        counts = [
            n_strict,
            str(sum(bool(one.refused) for one in mine)),
            str(sum(bool(one.failed) for one in mine)),
        ]
        times = [one[name].compile_ms for one in common]
        rows.append([name, *percentiles(times, 50, 90, 99, 100), *counts])
        conversions = [one[name].convert_ms for one in common if one[name].convert_ms]
        if conversions:
            rows.append(["JSON Schema to GBNF alone", *percentiles(conversions, 50, 90, 99, 100), "", "", ""])
    columns = ["p50", "p90", "p99", "max", "refused if strict", "refused", "crashed or too long"]
    return table(f"compiling, ms ({len(common)} schemas)", columns, rows)


def token_tables(names: list[str], results: Results) -> str:
    """Return the tables of masks and of accepted tokens, of the texts that all engines allow."""
    walks = [
        [walks[i] for walks in by_engine]
        for one in results.values()
        if all(one[name].is_compiled for name in names)
        for by_engine in [[one[name].walks for name in names]]
        for i in range(len(by_engine[0]))
    ]
    common = [walk for walk in walks if all(walked.is_allowed for walked in walk)]
    n_tokens = sum(len(walk[0].mask) for walk in common)
    out = []
    for title, key in (
        ("mask, first walk, µs", "mask"),
        ("mask, second walk, µs", "mask_again"),
        ("accepting a token, µs", "accept"),
    ):
        rows = []
        for i, name in enumerate(names):
            times = [time for walk in common for time in getattr(walk[i], key)]
            mean = f"{np.mean(times):,.3g}" if times else "–"
            rows.append([name, mean, *percentiles(times, 50, 90, 99, 99.9, 100)])
        columns = ["mean", "p50", "p90", "p99", "p99.9", "max"]
        out.append(table(f"{title} ({n_tokens:,} tokens of {len(common)} texts)", columns, rows))
    return "\n".join(out)


def agreement(names: list[str], results: Results) -> str:
    """Return how many valid texts each engine refuses, of the schemas that it compiles."""
    lines = []
    for name in names:
        walks = [walked for one in results.values() if one[name].is_compiled for walked in one[name].walks]
        n_refused = sum(not walked.is_allowed for walked in walks)
        lines.append(f"{name}: {n_refused} of {len(walks)} valid texts refused")
    return "\n".join(lines)


def clock_cost() -> float:
    """Return the µs that a time contains because of the clock itself."""
    t_start = time.thread_time_ns()
    for _ in range(20_000):
        time.thread_time_ns()
    return (time.thread_time_ns() - t_start) / 20_000 / 1e3


def main(flags: argparse.Namespace) -> int:
    peers = [name for name in flags.beside.split(",") if name]
    check_installed(peers)
    LlamaLog()  # keeps llama.cpp's lines off the screen
    names = ["llamad", *peers]
    vocab = flags.vocab or path_of("model")
    results = measured_all(names, vocab, flags.limit, flags.seconds)
    print(f"{', '.join(version(name) for name in names)}; {corpus.SCHEMASTORE}, {corpus.KUBERNETES}")
    print(
        f"{len(results)} schemas; vocabulary of {Path(vocab).name}; the clock takes {clock_cost():.1f} µs a time\n"
    )
    print(compile_table(names, results))
    print(token_tables(names, results))
    print(agreement(names, results))
    if flags.json:
        details = {
            schema: {
                name: {**vars(one), "walks": [vars(walked) for walked in one.walks]}
                for name, one in engines.items()
            }
            for schema, engines in results.items()
        }
        Path(flags.json).write_text(json.dumps(details))
    return 0
