"""Arithmetic over rounds: medians and ratios, and the title of each measure. Pure functions.

Shares are shares of one core; times are in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

Measures = dict[str, float]
Rounds = Sequence[Measures]

# Which way is better.
HIGHER, LOWER, NEITHER = "↑", "↓", ""

TITLES = {
    "tokens_per_s": ("tokens/s", HIGHER),
    "decode_tokens_per_s": ("tokens/s once all decode", HIGHER),
    "steady_tokens_per_s": ("tokens/s while all decode", HIGHER),
    "first_mean_ms": ("first token mean, ms", LOWER),
    "first_p50_ms": ("first token p50, ms", LOWER),
    "first_p99_ms": ("first token p99, ms", LOWER),
    "gap_p50_ms": ("gap p50, ms", LOWER),
    "gap_p99_ms": ("gap p99, ms", LOWER),
    "gap_max_ms": ("gap max, ms", LOWER),
    "gap_p99_over_p50": ("gap p99 / p50", LOWER),
    "alone_gap_p50_ms": ("alone: gap p50, ms", LOWER),
    "alone_gap_p99_ms": ("alone: gap p99, ms", LOWER),
    "text_first_ms": ("text as long: first token, ms", LOWER),
    "image_first_ms": ("new image: first token, ms", LOWER),
    "again_first_ms": ("again, other question: first token, ms", LOWER),
    "moved_first_ms": ("again, behind another text: first token, ms", LOWER),
    "side_first_p50_ms": ("arriving: first token p50, ms", LOWER),
    "side_first_max_ms": ("arriving: first token max, ms", LOWER),
    "image_rows": ("tokens of an image", NEITHER),
    "again_computed": ("again, other question: prompt tokens computed", LOWER),
    "side_prompts_per_s": ("arriving prompt tokens/s", HIGHER),
    "prompt_computed": ("prompt tokens computed", LOWER),
    "prompt_tokens": ("prompt tokens sent", NEITHER),
    "wall_s": ("seconds", LOWER),
    "requests_per_s": ("requests/s", HIGHER),
    "latency_p50_ms": ("latency p50, ms", LOWER),
    "latency_p99_ms": ("latency p99, ms", LOWER),
    "latency_max_ms": ("latency max, ms", LOWER),
    "answers_broken": ("answers broken off", LOWER),
    "listening_ms": ("listening, ms", LOWER),
    "health_ms": ("/health says 200, ms", LOWER),
    "start_first_ms": ("first token, ms", LOWER),
    "start_cpu_ms": ("CPU until then, ms", LOWER),
    "loaded_rss": ("loaded: RSS, MiB", LOWER),
    "loaded_pss": ("loaded: PSS, MiB", LOWER),
    "loaded_own": ("loaded: anonymous, MiB", LOWER),
    "worked_rss": ("after completions: RSS, MiB", LOWER),
    "worked_pss": ("after completions: PSS, MiB", LOWER),
    "worked_own": ("after completions: anonymous, MiB", LOWER),
    "idle_rss": ("with idle connections: RSS, MiB", LOWER),
    "idle_pss": ("with idle connections: PSS, MiB", LOWER),
    "idle_own": ("with idle connections: anonymous, MiB", LOWER),
    "idle_threads": ("with idle connections: threads", NEITHER),
    "idle_answered": ("idle connections that had an answer", NEITHER),
    "idle_again": ("idle connections that have another", NEITHER),
    "fresh_ms": ("a new connection's /health, ms", LOWER),
    "fresh_failed": ("new connections without an answer", NEITHER),
    "server_cpu": ("server CPU", NEITHER),
    "generator_cpu": ("generator CPU", NEITHER),
    "bystander_cpu": ("CPU of the waiting programs", NEITHER),
    "elsewhere_cpu": ("CPU of anything else", NEITHER),
}
SHARES = ("server_cpu", "generator_cpu", "bystander_cpu", "elsewhere_cpu")
TOTALS = ("answers_broken",)  # rare, and each of them counts


def middle(rounds: Rounds, key: str) -> float:
    """Return the median over the rounds that have the measure, or the sum if it is a total."""
    known = [one[key] for one in rounds if not math.isnan(one.get(key, math.nan))]
    if not known:
        return math.nan
    return sum(known) if key in TOTALS else median(known)


def divide(above: float, below: float) -> float:
    return above / below if below else math.nan


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of the medians, and the smallest and the largest ratio of a single round, which show the noise."""

    value: float
    low: float
    high: float


def ratio(ours: Rounds, theirs: Rounds, key: str) -> Ratio:
    """Return the ratio. With turns, the rounds of both come in pairs, so that each pair has a ratio."""
    pairs = zip(ours, theirs, strict=True) if len(ours) == len(theirs) else ()
    each = [divide(one.get(key, math.nan), other.get(key, math.nan)) for one, other in pairs]
    known = [value for value in each if not math.isnan(value)] or [math.nan]
    return Ratio(divide(middle(ours, key), middle(theirs, key)), min(known), max(known))
