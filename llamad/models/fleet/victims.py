"""Chooses which models make room for another one: the cheapest set that frees what is missing.

Pure. It must not know why a model is a candidate, or what becomes of the victims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

# The search is exact for so many candidates; its time can double with each one more.
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
    """Search depth first, and leave a branch if it can no longer be cheaper than the best set or free enough."""
    devices = list(missing)
    frees = [[one.frees.get(device, 0) for device in devices] for one in useful]
    rest = [[0] * len(devices)]  # what the candidates from each position on free together
    for row in reversed(frees):
        rest.append([a + b for a, b in zip(rest[-1], row, strict=True)])
    rest.reverse()
    best: list[int] = list(range(len(useful)))
    best_cost = sum(one.cost for one in useful)
    taken: list[int] = []

    def search(position: int, left: list[int], total: float) -> None:
        nonlocal best, best_cost
        if all(n <= 0 for n in left):
            if total < best_cost or (total == best_cost and len(taken) < len(best)):
                best, best_cost = taken.copy(), total
            return
        if any(n > m for n, m in zip(left, rest[position], strict=True)):
            return
        # The candidates are sorted by cost, so every set from here on costs at least one more of this cost.
        if total + useful[position].cost > best_cost:
            return
        taken.append(position)
        search(
            position + 1,
            [n - m for n, m in zip(left, frees[position], strict=True)],
            total + useful[position].cost,
        )
        taken.pop()
        search(position + 1, left, total)

    search(0, [missing[device] for device in devices], 0.0)
    return [useful[i] for i in best]


def _greedy(useful: list[Candidate], missing: Mapping[str, int]) -> list[Candidate]:
    """Take the candidate that frees most of what is missing for its cost, until nothing is missing."""
    left = {device: n for device, n in missing.items() if n > 0}
    pool = list(useful)
    chosen = []
    while left:

        def gain(one: Candidate, left: Mapping[str, int] = left) -> float:
            return sum(min(1.0, one.frees.get(device, 0) / n) for device, n in left.items())

        pool = [one for one in pool if gain(one) > 0.0]
        best = min(pool, key=lambda one: (one.cost / gain(one), one.cost, one.name))
        pool.remove(best)
        chosen.append(best)
        left = {device: n - best.frees.get(device, 0) for device, n in left.items()}
        left = {device: n for device, n in left.items() if n > 0}
    return chosen


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
