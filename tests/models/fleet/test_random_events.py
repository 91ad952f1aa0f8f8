"""The scheduler in a simulated world, with random events: rules.py checks every one of them.

Nobody waits for ever: when no more requests come, everybody who waits is admitted or refused within a bound.
"""

from __future__ import annotations

import pytest
from support.fleet.world import CRASH, DELAY, LOAD, OVERLONG, PLAN, STOP, World

N_SEEDS = 300


def run(seed: int, n_requests: int) -> World:
    world = World(seed)
    pause = world.random.choice([0.05, 0.3, 2.0])
    for _ in range(n_requests):
        world.ask()
        if world.random.random() < 0.03:
            world.meddle()
        world.run(until=world.now + world.random.expovariate(1.0 / pause))
        world.now += 0.001
    end = world.now
    world.run()
    assert not any(engine.waiting for engine in world.engines.values())
    turn = (
        world.limits.wait_seconds
        + world.limits.residence_seconds
        + OVERLONG
        + DELAY
        + 2 * (PLAN + LOAD + STOP + CRASH)
    )
    assert world.now - end <= turn * (len(world.engines) + 1)
    return world


@pytest.mark.parametrize("block", range(10))
def test_no_rule_is_broken(block):
    seeds = range(block * N_SEEDS // 10, (block + 1) * N_SEEDS // 10)
    worlds = [run(seed, 150) for seed in seeds]
    assert sum(world.n_events for world in worlds) > 5000
    # The worlds are such that the rules have something to say.
    assert sum(world.rules.n_evictions for world in worlds) > 50
    assert sum(world.rules.n_drains for world in worlds) > 100


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_no_rule_is_broken_for_long(block):
    for seed in range(1000 + block * 50, 1050 + block * 50):
        run(seed, 1500)
