"""Owns what `bench/gpu run` prints: Markdown tables out of the results, each row what the issue of speed asks for.

Pure functions. A value is the median over the rounds, unless it counts what should never happen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench import report, stats
from bench.stats import Measures

BATCHED, SERVER, SERVER_BS, LLAMAD = "batched-bench", "llama-server", "llama-server -bs", "llamad"
PROGRAMS = (BATCHED, SERVER, SERVER_BS, LLAMAD)

# scenario -> the measures of its table, the first of which gets the ratios
COLUMNS = {
    "streams": ("decode_tokens_per_s", "steady_tokens_per_s", "tokens_per_s", "first_mean_ms", "gap_p50_ms",
                "gap_p99_ms"),
    "ttft": ("first_mean_ms", "first_p50_ms", "first_p99_ms", "tokens_per_s"),
    "gap": ("gap_p99_over_p50", "gap_p50_ms", "gap_p99_ms", "gap_max_ms", "side_prompts_per_s", "decode_tokens_per_s"),
    "prefix": ("first_mean_ms", "first_p99_ms", "prompt_computed", "prompt_tokens", "wall_s"),
    "requests": ("requests_per_s", "latency_p50_ms", "latency_p99_ms", "latency_max_ms", "answers_broken"),
}  # fmt: skip
SHARES = ("generator_cpu", "server_cpu")

TOTALS = ("answers_broken",)  # rare, and each of them counts

Rounds = Sequence[Measures]
Found = dict[tuple[str, str], Rounds]  # by point and program


def middle(rounds: Rounds, key: str) -> float:
    known = [one[key] for one in rounds if not math.isnan(one.get(key, math.nan))]
    if key in TOTALS:
        return sum(known) if known else math.nan
    return stats.medians([{key: value} for value in known])[key] if known else math.nan


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def programs_of(found: Found) -> list[str]:
    return [name for name in PROGRAMS if any(program == name for _, program in found)]


def points_of(found: Found) -> list[str]:
    return list(dict.fromkeys(point for point, _ in found))


def compared(found: Found, key: str) -> str:
    """One row a point, one column a program, then llamad's ratios to the others."""
    names = programs_of(found)
    others = [name for name in names if name != LLAMAD] if LLAMAD in names else []
    rows = [["", *names, *(f"llamad / {name}" for name in others)]]
    for point in points_of(found):
        values = {name: middle(found.get((point, name), []), key) for name in names}
        ratios = [stats.divide(values[LLAMAD], values[name]) for name in others]
        rows.append([point, *map(report.number, values.values()), *map(report.factor, ratios)])
    return markdown(rows)


def details(found: Found, keys: Sequence[str]) -> str:
    """One row a point and program, one column a measure."""
    rows = [["", "", *(stats.TITLES[key][0] for key in (*keys, *SHARES))]]
    for point in points_of(found):
        for name in programs_of(found):
            rounds = found.get((point, name))
            if not rounds or name == BATCHED:
                continue
            values = [report.number(middle(rounds, key)) for key in keys]
            shares = [middle(rounds, key) for key in SHARES]
            rows.append(
                [point, name, *values, *("-" if math.isnan(s) else report.percent(s) for s in shares)]
            )
    return markdown(rows)


def whole(scenario: str, found: Found, measure: str | None) -> str:
    keys = COLUMNS[scenario]
    first = measure or keys[0]
    return f"{stats.TITLES[first][0]}\n\n{compared(found, first)}\n\nall measures\n\n{details(found, keys)}"
