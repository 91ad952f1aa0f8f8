"""Makes the report from the rounds: Markdown tables, and JSON. Pure functions.

A value is the median over the rounds; a ratio is llamad's over another program's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench import stats
from bench.programs import BATCHED, LLAMAD, NAMES
from bench.results import without_nan
from bench.scenarios import MEASURES
from bench.stats import Rounds

ALONE = (
    "Only llamad was measured. To compare: `make peer` builds llama-server and prints its path; set LLAMA_SERVER "
    "to it (or pass --server)."
)

Found = dict[tuple[str, str], Rounds]  # by point and program


def number(value: float) -> str:
    """Format a number with three or four significant digits."""
    if math.isnan(value):
        return "-"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def percent(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value * 100:.1f} %" if value < 0.1 else f"{value * 100:.0f} %"


def shown(rounds: Rounds, key: str) -> str:
    value = stats.middle(rounds, key)
    return percent(value) if key in stats.SHARES else number(value)


def factor(ours: Rounds, theirs: Rounds, key: str, is_paired: bool) -> str:
    """Return the ratio; with the range of single rounds if they were measured in pairs. A range that includes 1 shows
    no difference."""
    ratio = stats.ratio(ours, theirs, key)
    if math.isnan(ratio.value):
        return "-"
    has_span = is_paired and len(ours) > 1 and not math.isnan(ratio.low)
    span = f" ({ratio.low:.2f} - {ratio.high:.2f})" if has_span else ""
    return f"{ratio.value:.3f}{span}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a padded table, so that it also looks good on a terminal."""
    head, *body = rows
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(head))]
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *body]
    out = []
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        out.append("| " + " | ".join([first.ljust(widths[0]), *cells]) + " |")
    return "\n".join(out)


def programs_of(found: Found) -> list[str]:
    return [name for name in NAMES if any(program == name for _, program in found)]


def points_of(found: Found) -> list[str]:
    return list(dict.fromkeys(point for point, _ in found))


def ratios(found: Found, point: str, others: Sequence[str], key: str, is_paired: bool) -> list[str]:
    ours = found.get((point, LLAMAD), [])
    return [factor(ours, found.get((point, name), []), key, is_paired and name != BATCHED) for name in others]


def head_of(found: Found) -> tuple[list[str], list[str]]:
    """Return the programs, and those that llamad is compared with."""
    names = programs_of(found)
    return names, [name for name in names if name != LLAMAD] if LLAMAD in names else []


def compared(found: Found, key: str, is_paired: bool) -> str:
    """Return the table of one measure, with a row for each point."""
    names, others = head_of(found)
    rows = [[title(key), *names, *(f"llamad / {name}" for name in others)]]
    for point in points_of(found):
        values = [shown(found.get((point, name), []), key) for name in names]
        rows.append([point, *values, *ratios(found, point, others, key, is_paired)])
    return markdown(rows)


def details(found: Found, point: str, keys: Sequence[str], is_paired: bool) -> str:
    """Return the table of one point, with a row for each measure."""
    names, others = head_of(found)
    rows = [[point, *names, *(f"llamad / {name}" for name in others)]]
    for key in keys:
        values = [shown(found.get((point, name), []), key) for name in names]
        if any(value != "-" for value in values):
            has_ratio = stats.TITLES[key][1] != stats.NEITHER
            each = ratios(found, point, others, key, is_paired) if has_ratio else [""] * len(others)
            rows.append([title(key), *values, *each])
    return markdown(rows)


def title(key: str) -> str:
    return " ".join(stats.TITLES[key]).strip()


def whole(scenario: str, found: Found, measure: str | None, is_paired: bool) -> str:
    keys = MEASURES[scenario]
    first = measure or keys[0]
    parts = [f"## {scenario}"]
    if len(points_of(found)) > 1 or first not in keys:
        parts.append(compared(found, first, is_paired))
    shares = [key for key in stats.SHARES if key not in keys]
    parts += [details(found, point, (*keys, *shares), is_paired) for point in points_of(found)]
    return "\n\n".join(parts) + "\n"


def as_json(setup: dict[str, Any], scenarios: dict[str, Found]) -> dict[str, Any]:
    """Return everything that was printed, and the single rounds."""
    out: list[dict[str, Any]] = []
    for scenario, found in scenarios.items():
        for point in points_of(found):
            rounds = {name: found[point, name] for name in programs_of(found) if (point, name) in found}
            one: dict[str, Any] = {"scenario": scenario, "point": point, "rounds": rounds}
            others = [name for name in rounds if name != LLAMAD] if LLAMAD in rounds else []
            one["ratios"] = {
                name: {
                    key: asdict(stats.ratio(rounds[LLAMAD], rounds[name], key))
                    for key in MEASURES[scenario]
                    if stats.TITLES[key][1] != stats.NEITHER
                }
                for name in others
            }
            out.append(one)
    whole: dict[str, Any] = without_nan({"setup": setup, "points": out})
    return whole
