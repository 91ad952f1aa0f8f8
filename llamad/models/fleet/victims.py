"""Chooses which models make room for another one: the cheapest set that frees what is missing.

Pure. It must not know why a model is a candidate, or what becomes of the victims.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

# The search is exact for so many candidates; its time may double with each one more.
N_EXACT_MAX = 12


class Candidate(msgspec.Struct, frozen=True):
    name: str
    cost: float
    frees: Mapping[str, int]


def cost(reload_seconds: float, idle_seconds: float) -> float:
    """Return what the loss of a model costs: its load is repeated, the more likely the more recently it was used."""
    return reload_seconds / (1.0 + max(0.0, idle_seconds))


def choose(candidates: Sequence[Candidate], missing: Mapping[str, int]) -> list[Candidate] | None:
    """Return the cheapest candidates that together free what is missing, none of which could be left out; or None if
    all of them together free too little."""
    for device, n in missing.items():
        if sum(one.frees.get(device, 0) for one in candidates) < n:
            return None
    useful = [one for one in candidates if any(one.frees.get(device, 0) > 0 for device in missing)]
    useful.sort(key=lambda one: (one.cost, one.name))
    chosen = _exact(useful, missing) if len(useful) <= N_EXACT_MAX else _greedy(useful, missing)
    return _without_spares(chosen, missing)


def _exact(useful: list[Candidate], missing: Mapping[str, int]) -> list[Candidate]:
    """Search depth first from a greedy set on, and leave a branch that cannot become cheaper than the best set."""
    best = _greedy(useful, missing)
    best_cost = sum(one.cost for one in best)
    # The best candidates come first, so that the bound of the others grows soon.
    useful = sorted(useful, key=lambda one: (one.cost / _gain(one, missing), one.name))
    frees = [[one.frees.get(device, 0) for device in missing] for one in useful]
    # For the candidates from each position on: what they free together, and the least cost of a byte.
    totals = [[0] * len(missing)]
    rates = [[math.inf] * len(missing)]
    for one, row in zip(reversed(useful), reversed(frees), strict=True):
        totals.append([a + b for a, b in zip(totals[-1], row, strict=True)])
        rates.append([min(a, one.cost / b) if b else a for a, b in zip(rates[-1], row, strict=True)])
    totals.reverse()
    rates.reverse()
    taken: list[Candidate] = []

    def search(position: int, left: list[int], total: float) -> None:
        nonlocal best, best_cost
        if total >= best_cost:
            return
        bound = 0.0
        is_complete = True
        for n, n_rest, rate in zip(left, totals[position], rates[position], strict=True):
            if n > 0:
                is_complete = False
                if n > n_rest:
                    return
                bound = max(bound, n * rate)
        if is_complete:
            best, best_cost = taken.copy(), total
            return
        if total + bound >= best_cost:
            return
        one = useful[position]
        taken.append(one)
        search(position + 1, [n - m for n, m in zip(left, frees[position], strict=True)], total + one.cost)
        taken.pop()
        search(position + 1, left, total)

    search(0, list(missing.values()), 0.0)
    return best


def _greedy(useful: list[Candidate], missing: Mapping[str, int]) -> list[Candidate]:
    """Take the candidate that frees most of what is missing for its cost, until nothing is missing."""
    left = {device: n for device, n in missing.items() if n > 0}
    pool = list(useful)
    chosen = []
    while left:
        rated = [
            (one.cost / gain, one.cost, one.name, one) for one in pool if (gain := _gain(one, left)) > 0.0
        ]
        best = min(rated)[-1]
        pool.remove(best)
        chosen.append(best)
        left = {device: n - best.frees.get(device, 0) for device, n in left.items()}
        left = {device: n for device, n in left.items() if n > 0}
    return chosen


def _gain(one: Candidate, left: Mapping[str, int]) -> float:
    """Return the share of what is left that a candidate frees, summed over the devices."""
    return sum(min(1.0, one.frees.get(device, 0) / n) for device, n in left.items())


def _without_spares(chosen: list[Candidate], missing: Mapping[str, int]) -> list[Candidate]:
    """Leave out, the dearest first, what is not needed beside the others."""
    spare = {device: sum(one.frees.get(device, 0) for one in chosen) - n for device, n in missing.items()}
    kept = []
    for one in sorted(chosen, key=lambda one: (-one.cost, one.name)):
        if all(one.frees.get(device, 0) <= n for device, n in spare.items()):
            spare = {device: n - one.frees.get(device, 0) for device, n in spare.items()}
        else:
            kept.append(one)
    return sorted(kept, key=lambda one: (one.cost, one.name))
