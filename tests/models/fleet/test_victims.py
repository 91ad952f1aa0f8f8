"""The choice of victims against a search through all sets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping

import pytest

from llamad.models.fleet.victims import N_EXACT_MAX, Candidate, choose, cost


def frees(candidates: Iterable[Candidate], device: str) -> int:
    return sum(one.frees.get(device, 0) for one in candidates)


def price(candidates: Iterable[Candidate]) -> float:
    return sum(one.cost for one in candidates)


def covers(candidates: Iterable[Candidate], missing: Mapping[str, int]) -> bool:
    return all(frees(candidates, device) >= n for device, n in missing.items())


def random_case(rng: random.Random, n_max: int):
    devices = ("gpu", "host", "slots")[: rng.randint(1, 3)]
    candidates = [
        Candidate(
            str(i),
            rng.choice([0.0, 0.5, 1.0, rng.random()]),
            {device: rng.randint(0, 9) for device in devices},
        )
        for i in range(rng.randint(0, n_max))
    ]
    return candidates, {device: rng.randint(1, 25) for device in devices}


@pytest.mark.parametrize("seed", range(10))
def test_the_cheapest_set_is_chosen(seed):
    rng = random.Random(seed)
    for _ in range(30):
        candidates, missing = random_case(rng, 9)
        sets = itertools.chain.from_iterable(
            itertools.combinations(candidates, n) for n in range(len(candidates) + 1)
        )
        costs = [price(some) for some in sets if covers(some, missing)]
        chosen = choose(candidates, missing)
        if not costs:
            assert chosen is None
            continue
        assert covers(chosen, missing)
        assert abs(price(chosen) - min(costs)) < 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_none_of_the_chosen_could_be_left_out(seed):
    rng = random.Random(seed)
    for _ in range(30):
        candidates, missing = random_case(rng, 3 * N_EXACT_MAX)
        chosen = choose(candidates, missing)
        assert (chosen is not None) == covers(candidates, missing)
        for one in chosen or []:
            assert not covers([other for other in chosen if other is not one], missing)


def test_a_slow_load_and_a_recent_use_cost_more():
    assert cost(10.0, 60.0) > cost(5.0, 60.0) > cost(5.0, 61.0)
    assert cost(5.0, -1.0) == cost(5.0, 0.0)
