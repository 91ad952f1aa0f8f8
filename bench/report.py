"""Owns what is printed and the JSON beside it. Pure functions from sections to text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench import stats
from bench.programs import LLAMA_SERVER, LLAMAD
from bench.scenarios import Same, Section

ALONE = (
    "llamad alone was measured. To compare: `make peer` builds llama-server and prints its path; set LLAMA_SERVER "
    "to it (or pass --server)."
)


def number(value: float) -> str:
    """Three or four digits that matter."""
    if math.isnan(value):
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def factor(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def percent(value: float) -> str:
    return f"{value * 100:.1f} %" if value < 0.1 else f"{value * 100:.0f} %"


def cells(section: Section) -> list[list[str]]:
    """The table's rows, its head first."""
    names = list(section.rounds)
    compared = LLAMAD in names and LLAMA_SERVER in names
    rows = [["", *names, *(["ratio", "want", "of single rounds"] if compared else [])]]
    middles = {name: stats.medians(rounds) for name, rounds in section.rounds.items()}
    for key in middles[names[0]]:
        title, wanted = stats.TITLES[key]
        show = percent if key in stats.SHARES else number
        row = [title, *(show(middles[name][key]) for name in names)]
        if compared and wanted:
            ratio = stats.ratio(section.rounds[LLAMAD], section.rounds[LLAMA_SERVER], key)
            row += [factor(ratio.value), wanted, f"{factor(ratio.low)} - {factor(ratio.high)}"]
        rows.append(row)
    return rows


def table(section: Section) -> str:
    """A section for a terminal: the first column to the left, the others to the right."""
    rows = cells(section)
    n = len(rows[0])
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(n)]
    lines = [section.title]
    for row in rows:
        padded = [cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row)]
        lines.append(("  " + "  ".join(padded)).rstrip())
    return "\n".join([*lines, *(f"  {note}" for note in section.notes)])


def same(found: Sequence[Same]) -> str:
    lines = ["same text (one request at a time, nothing cached)"]
    for one in found:
        lines.append(f"  {one.title}: {'yes' if one.is_same else 'NO'}, {one.detail}")
    return "\n".join(lines)


def idle(n_slots: int, shares: dict[str, float]) -> str:
    told = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
    return f"idle, {n_slots} slot{'s' if n_slots > 1 else ''}: {told} of a core"


def known(value: Any) -> Any:
    """JSON has no NaN: what could not be computed becomes null."""
    if isinstance(value, dict):
        return {key: known(one) for key, one in value.items()}
    if isinstance(value, list):
        return [known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def as_json(setup: dict[str, Any], sections: Sequence[Section], found: Sequence[Same]) -> dict[str, Any]:
    """Everything that was printed, and the single rounds."""
    out: list[dict[str, Any]] = []
    for section in sections:
        names = list(section.rounds)
        one: dict[str, Any] = {
            "title": section.title,
            "notes": section.notes,
            "rounds": section.rounds,
            "medians": {name: stats.medians(rounds) for name, rounds in section.rounds.items()},
        }
        if LLAMAD in names and LLAMA_SERVER in names:
            one["ratios"] = {
                key: asdict(stats.ratio(section.rounds[LLAMAD], section.rounds[LLAMA_SERVER], key))
                for key in section.rounds[LLAMAD][0]
                if stats.TITLES[key][1]
            }
        out.append(one)
    whole = {"setup": setup, "sections": out, "same_text": [asdict(item) for item in found]}
    return {key: known(value) for key, value in whole.items()}
