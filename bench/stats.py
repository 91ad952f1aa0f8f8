"""Owns the arithmetic: from runs to measures, from measures of several rounds to medians and ratios.

Pure functions. Shares are of one core; times are in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.load import Run
from bench.wire import Stream

Measures = dict[str, float]

# What a reader wants of llamad's value over llama-server's: more, less, or nothing.
MORE, LESS, NEITHER = ">1", "<1", ""

TITLES = {
    "tokens_per_s": ("tokens/s", MORE),
    "decode_tokens_per_s": ("tokens/s once all write", MORE),
    "steady_tokens_per_s": ("tokens/s while all write", MORE),
    "first_mean_ms": ("first token mean, ms", LESS),
    "first_p50_ms": ("first token p50, ms", LESS),
    "first_p99_ms": ("first token p99, ms", LESS),
    "gap_p50_ms": ("gap p50, ms", LESS),
    "gap_p99_ms": ("gap p99, ms", LESS),
    "gap_max_ms": ("gap most, ms", LESS),
    "gap_p99_over_p50": ("gap p99 / p50", LESS),
    "side_prompts_per_s": ("arriving prompt tokens/s", MORE),
    "prompt_computed": ("prompt tokens computed", LESS),
    "prompt_tokens": ("prompt tokens sent", NEITHER),
    "wall_s": ("seconds", LESS),
    "requests_per_s": ("requests/s", MORE),
    "latency_p50_ms": ("latency p50, ms", LESS),
    "latency_p99_ms": ("latency p99, ms", LESS),
    "latency_max_ms": ("latency most, ms", LESS),
    "answers_broken": ("answers broken off", LESS),
    "listening_ms": ("listening, ms", LESS),
    "health_ms": ("/health says 200, ms", LESS),
    "start_first_ms": ("first token, ms", LESS),
    "start_cpu_ms": ("CPU until then, ms", LESS),
    "loaded_rss": ("loaded: RSS, MiB", LESS),
    "loaded_pss": ("loaded: PSS, MiB", LESS),
    "loaded_own": ("loaded: anonymous, MiB", LESS),
    "worked_rss": ("after completions: RSS, MiB", LESS),
    "worked_pss": ("after completions: PSS, MiB", LESS),
    "worked_own": ("after completions: anonymous, MiB", LESS),
    "idle_rss": ("with idle connections: RSS, MiB", LESS),
    "idle_pss": ("with idle connections: PSS, MiB", LESS),
    "idle_own": ("with idle connections: anonymous, MiB", LESS),
    "idle_threads": ("with idle connections: threads", NEITHER),
    "idle_answered": ("idle connections that had an answer", NEITHER),
    "idle_again": ("idle connections that have another", NEITHER),
    "fresh_ms": ("a new connection's /health, ms", LESS),
    "fresh_failed": ("new connections without an answer", NEITHER),
    "server_cpu": ("server CPU", NEITHER),
    "generator_cpu": ("generator CPU", NEITHER),
    "bystander_cpu": ("CPU of the other program", NEITHER),
    "elsewhere_cpu": ("CPU of anything else", NEITHER),
}
SHARES = ("server_cpu", "generator_cpu", "bystander_cpu", "elsewhere_cpu")


def percentile(values: Sequence[float], percent: float) -> float:
    """Interpolated between the two nearest ranks; of nothing it is not a number."""
    if not values:
        return math.nan
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def of_streams(run: Run, streams: Sequence[Stream]) -> Measures:
    """From the first byte sent to the last byte read; every request of the run counts."""
    firsts = [stream.first_ms for stream in streams]
    gaps = [gap for stream in streams for gap in stream.gaps_ms]
    n_tokens = sum(stream.n_tokens for stream in streams)
    return {
        "tokens_per_s": n_tokens / run.wall_s,
        "first_p50_ms": percentile(firsts, 50),
        "first_p99_ms": percentile(firsts, 99),
        "gap_p50_ms": percentile(gaps, 50),
        "gap_p99_ms": percentile(gaps, 99),
    }


def of_requests(run: Run) -> Measures:
    latencies = [latency / 1e6 for latency in run.latencies]
    return {
        "requests_per_s": len(latencies) / run.wall_s,
        "latency_p50_ms": percentile(latencies, 50),
        "latency_p99_ms": percentile(latencies, 99),
    }


def medians(rounds: Sequence[Measures]) -> Measures:
    """Of each measure the median over the rounds."""
    return {key: median(one[key] for one in rounds) for key in rounds[0]}


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of the medians, and the least and the greatest of a single round: what noise there was."""

    value: float
    low: float
    high: float


def divide(above: float, below: float) -> float:
    return above / below if below else math.nan


def ratio(ours: Sequence[Measures], theirs: Sequence[Measures], key: str) -> Ratio:
    """Round by round the two were measured right after each other, so each round has a ratio of its own."""
    each = [divide(one[key], other[key]) for one, other in zip(ours, theirs, strict=True)]
    known = [value for value in each if not math.isnan(value)] or [math.nan]
    return Ratio(divide(medians(ours)[key], medians(theirs)[key]), min(known), max(known))
