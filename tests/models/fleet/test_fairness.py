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


@pytest.mark.parametrize("load_seconds", [1.0, 12.0, 100.0])
def test_models_that_take_turns_serve_at_least_as_long_as_they_load(load_seconds):
    """Two clients that send one short request after the other to models of which only one fits. Neither starves, and
    models do not leave as soon as they are idle, because most of the time would be spent on loads."""
    fleet = Fleet({"a": 6, "b": 6}, capacity=10, wait_seconds=WAIT, is_prompt=False)
    tickets = itertools.count(1)
    names: dict[int, str] = {}
    ends: list[tuple[float, str, str]] = []
    served = {"a": 0, "b": 0}
    busy = {"a": 0.0, "b": 0.0}
    waits = [0.0]
    asked: dict[int, float] = {}

    def ask(name: str) -> None:
        ticket = next(tickets)
        names[ticket], asked[ticket] = name, fleet.now
        carry_out(fleet.scheduler.request(name, ticket, fleet.now))

    def carry_out(effects) -> None:
        for effect in effects:
            kind = type(effect).__name__
            if kind == "Admit":
                waits.append(fleet.now - asked[effect.ticket])
                ends.append((fleet.now + 0.5, "done", names[effect.ticket]))
            else:
                delay = load_seconds if kind == "Proceed" else 0.1
                ends.append((fleet.now + delay, kind, effect.model))

    def happen(kind: str, name: str) -> None:
        scheduler, now = fleet.scheduler, fleet.now
        if kind == "done":
            served[name] += 1
            carry_out(scheduler.done(name, now))
            ask(name)
        elif kind == "Start":
            carry_out(scheduler.planned(name, fleet.needs[name], fleet.capacity, now))
        elif kind == "Proceed":
            busy[name] += load_seconds
            carry_out(scheduler.loaded(name, fleet.needs[name], now, load_seconds))
        else:
            carry_out(scheduler.stopped(name, now))

    begin = fleet.now
    ask("a")
    ask("b")
    while fleet.now < begin + 3600.0:
        tick = fleet.scheduler.next_tick(fleet.now)
        ends.sort()
        if tick is not None and tick <= ends[0][0]:
            fleet.now = tick
            carry_out(fleet.scheduler.tick(tick))
        else:
            fleet.now, kind, name = ends.pop(0)
            happen(kind, name)
    assert sum(busy.values()) <= 3600.0 * max(0.55, load_seconds / (load_seconds + WAIT) + 0.05)
    assert max(waits) <= WAIT + 3 * load_seconds + 2.0
    assert min(served.values()) > 0.8 * max(served.values())
