"""Waits are bounded: steady traffic on loaded models does not keep another model out."""

from __future__ import annotations

import itertools

import pytest
from support.fleet.driver import Fleet
from support.fleet.world import LOAD, OVERLONG, PLAN, STOP, World

WAIT = 30.0
REQUEST = 8.0


@pytest.mark.parametrize(
    "needs", [{"a": 5, "b": 5, "c": 5}, {"a": 5, "b": 5, "c": 10}, {"a": 1, "b": 9, "c": 3}]
)
@pytest.mark.parametrize(
    "limits", [{"capacity": 10}, {"capacity": 10, "models_max": 1}, {"capacity": 15, "models_max": 2}]
)
def test_one_waiter_among_steady_traffic(needs, limits):
    """There is never a moment without a running request on "a" and "b"; the waiter for "c" has its turn after
    `wait_seconds` and the longest request. (Loads take no time here.)"""
    fleet = Fleet(needs, wait_seconds=WAIT, queue_max=0, **limits)
    tickets = itertools.count(1)
    running: list[tuple[float, str]] = []
    names: dict[int, str] = {}

    def note(begin: int) -> None:
        for effect in fleet.log[begin:]:
            if effect.startswith("admit"):
                running.append((fleet.now + REQUEST, names[int(effect.split()[1])]))

    def pass_time(seconds: float) -> None:
        end = fleet.now + seconds
        while fleet.now < end:
            for name in ("a", "b"):
                ticket = next(tickets)
                names[ticket] = name
                begin = len(fleet.log)
                fleet.do("request", name, ticket)
                note(begin)
            begin = len(fleet.log)
            fleet.wait(0.5)
            note(begin)
            for time, name in [one for one in running if one[0] <= fleet.now]:
                running.remove((time, name))
                begin = len(fleet.log)
                fleet.do("done", name)
                note(begin)

    pass_time(100.0)
    names[0] = "c"
    fleet.do("request", "c", 0)
    begin = len(fleet.log)
    pass_time(WAIT - 1.0)
    assert "admit 0" not in fleet.log[begin:] or limits["capacity"] > 10
    # With one slot "a" and "b" take turns too, and one of them may have waited before "c".
    pass_time(1.0 + REQUEST + 1.0 if "models_max" not in limits else WAIT + 2 * REQUEST + 2.0)
    assert "admit 0" in fleet.log[begin:]


@pytest.mark.parametrize("block", range(4))
def test_every_wait_is_bounded(block):
    """With sound engines and patient clients, each request waits at most for one turn of each older model."""
    for seed in range(block * 10, block * 10 + 10):
        world = World(seed, n_models=6, queue_max=0)
        world.trouble = 0.0
        for _ in range(200):
            world.ask()
            world.run(until=world.now + world.random.uniform(0.0, 0.6))
            world.now += 0.001
        world.run()
        turn = world.limits.wait_seconds + OVERLONG + STOP + PLAN + LOAD
        assert max(world.rules.waits) <= turn * len(world.engines)
