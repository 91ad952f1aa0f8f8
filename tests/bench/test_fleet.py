"""The simulation of a fleet: what must hold whatever is drawn, on fleets that are small enough to be quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench import __main__ as program
from bench.fleet.machine import Machine, Request, Speeds
from bench.fleet.policies import POLICIES, BoundedHash, CacheAware, ConsistentHash, LeastLoaded, Loads
from bench.fleet.simulate import AFTER, START, STEADY, Plan, Result, Simulation
from bench.fleet.workload import Shape, Workload, draw

PLAN = Plan(n_machines=8, seconds=120.0, counted_from=40.0, loss_at=90.0, lost=0.0)
SHAPE = Shape(n_systems=20)
ENDLESS = 10**12


def simulate(
    policy: Callable, plan: Plan = PLAN, speeds: Speeds | None = None, rate: float = 1.0
) -> Simulation:
    work = draw(SHAPE, rate * plan.n_machines, plan.seconds, plan.seed)
    one = Simulation(plan, speeds or Speeds(), work, policy, SHAPE.context)
    one.run()
    return one


def total(result: Result, name: str) -> int:
    return sum(getattr(part, name) for part in result.parts)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("lost", [0.0, 0.25])
def test_every_request_ends_or_is_still_there(name: str, lost: float) -> None:
    one = simulate(POLICIES[name], replace(PLAN, lost=lost))
    result = one.result
    assert result.n_sent == result.n_done + result.n_in_flight
    assert result.n_done > 500
    there = sum(len(m.waiting) + len(m.prefilling) + m.n_decoding for m in one.machines)
    assert there + len(one.again) == result.n_in_flight
    assert all(m.n_decoding == len(m.ends) for m in one.machines)
    assert all(m.n_kept == sum(m.kept.values()) <= m.speeds.cache for m in one.machines)
    assert all(sum(m.systems.values()) == len(m.kept) for m in one.machines)
    assert (result.n_restarted > 0) is (lost > 0)
    gone = [m for m in one.machines if not one.loads.alive[m.id]]
    assert len(gone) == round(lost * PLAN.n_machines)
    assert all(
        not m.kept and not m.waiting and not m.n_decoding for m in gone
    )  # nothing was sent there since


def test_the_same_seed_draws_and_does_the_same() -> None:
    results = [simulate(CacheAware, replace(PLAN, seed=seed)).result for seed in (3, 3, 4)]
    assert results[0] == results[1] != results[2]


def test_one_machine_that_forgets_nothing_computes_nothing_again() -> None:
    alone = replace(PLAN, n_machines=1)
    for name, policy in POLICIES.items():
        result = simulate(policy, alone, Speeds(cache=ENDLESS)).result
        assert total(result, "n_again") == 0, name
        assert 0 < total(result, "n_computed") < total(result, "n_prompt")


def test_sticky_conversations_cost_only_system_prompts_again() -> None:
    """Each machine reads each system prompt once; without a limit to the cache nothing else is read twice."""
    one = simulate(ConsistentHash, speeds=Speeds(cache=ENDLESS))
    n_systems = sum(one.workload.system_tokens[system] for m in one.machines for system in m.systems)
    assert 0 < total(one.result, "n_again") <= n_systems
    spread = simulate(LeastLoaded, speeds=Speeds(cache=ENDLESS)).result
    assert total(spread, "n_again") > 5 * total(one.result, "n_again")


def test_without_a_cache_all_is_computed() -> None:
    result = simulate(ConsistentHash, speeds=Speeds(cache=0)).result
    for part in result.parts:
        assert part.n_computed == part.n_prompt > 0


def test_a_loss_costs_what_the_lost_machines_knew() -> None:
    speeds = Speeds(cache=ENDLESS)
    whole = simulate(ConsistentHash, speeds=speeds).result
    broken = simulate(ConsistentHash, replace(PLAN, lost=0.25), speeds).result
    assert broken.parts[START] == whole.parts[START]
    assert broken.parts[STEADY].n_again == whole.parts[STEADY].n_again
    assert broken.parts[AFTER].n_again > 3 * whole.parts[AFTER].n_again


def test_bounded_hashing_bounds() -> None:
    class Watched(BoundedHash):
        def pick(self, conversation: int, n_known: int, n_prompt: int) -> int:
            machine = super().pick(conversation, n_known, n_prompt)
            mean = (self.loads.total + 1) / self.loads.n_alive
            assert self.loads.counts[machine] < self.bound * mean + 1
            return machine

    bounded = simulate(Watched, rate=3.0).result
    free = simulate(ConsistentHash, rate=3.0).result
    assert sum(bounded.spreads) < sum(free.spreads)
    assert bounded.parts[STEADY].n_again > free.parts[STEADY].n_again


def test_the_least_loaded_machine_is_chosen() -> None:
    loads = Loads(4, seed=1)
    for machine, n in enumerate((2, 1, 3, 1)):
        for _ in range(n):
            loads.change(machine, 1)
    assert loads.least() in (1, 3)
    assert (loads.most(), loads.total) == (3, 7)
    loads.lose(1)
    assert loads.least() == 3
    loads.lose(2)
    assert (loads.most(), loads.total) == (2, 3)


def one_system(n_conversations: int) -> Workload:
    """Conversations of one turn with a system prompt of 100 tokens, sent together."""
    n = n_conversations
    return Workload(
        [0.0] * n,
        list(range(n)),
        list(range(1, n + 1)),
        [0] * n,
        [0] * n,
        [100],
        [50] * n,
        [246] * n,
        [0.0] * n,
    )


def test_times_follow_from_the_speeds() -> None:
    """One request alone, then one beside a stream that decodes."""
    speeds = Speeds(prefill=1000.0)
    plan = replace(PLAN, n_machines=1, counted_from=0.0)
    result = Simulation(plan, speeds, one_system(1), LeastLoaded, SHAPE.context).run()
    assert result.parts[STEADY].first_s == [pytest.approx(0.150)]
    assert result.n_done == 1
    machine = Machine(0, speeds, speeds.of_stream())
    machine.begin_prefill(Request(0.0, 0, 150, 246, n_new=150))
    machine.advance(machine.next_event())
    assert machine.t == pytest.approx(0.150)
    assert machine.end_prefill() is not None
    assert machine.next_event() == pytest.approx(0.150 + 1.0)  # 246 tokens at 246 tokens/s
    machine.begin_prefill(Request(0.0, 1, 75, 1, n_new=75))
    machine.advance(machine.next_event())
    assert machine.t == pytest.approx(0.150 + 0.100)  # at three quarters of its speed
    assert machine.decoded == pytest.approx(0.1 * 246 / 4)


def test_a_shared_system_prompt_is_read_once_a_machine() -> None:
    plan = replace(PLAN, n_machines=1, counted_from=0.0)
    result = Simulation(plan, Speeds(n_slots=4), one_system(10), LeastLoaded, SHAPE.context).run()
    assert (result.parts[STEADY].n_prompt, result.parts[STEADY].n_computed) == (1500, 100 + 10 * 50)
    first = result.parts[STEADY].first_s
    assert (len(first), first) == (10, sorted(first))
    assert first[4] > first[3] + 1.0  # no slot until an answer was complete


def test_what_was_lost_halfway_is_computed_again() -> None:
    plan = replace(PLAN, n_machines=2, counted_from=0.0, loss_at=0.5, lost=0.5)
    result = Simulation(plan, Speeds(), one_system(8), LeastLoaded, SHAPE.context).run()
    assert (result.n_restarted, result.n_done) == (4, 8)
    assert result.parts[AFTER].n_prompt == 4 * 150
    assert (
        result.parts[AFTER].n_again == result.parts[AFTER].n_computed == 4 * 50
    )  # the system prompt is there


def test_cache_aware_leaves_a_machine_that_is_too_busy() -> None:
    loads = Loads(3, seed=1)
    policy = CacheAware(loads, one_system(40))
    picked = []
    for conversation in range(40):
        picked.append(policy.pick(conversation, 100, 150))
        loads.change(picked[-1], 1)
    assert picked[:9] == [picked[0]] * 9  # where the system prompt is
    assert len(set(picked)) == 3
    assert max(loads.counts) - min(loads.counts) <= CacheAware.spread + 1


def test_the_drawn_conversations_are_as_stated() -> None:
    shape = Shape()
    work = draw(shape, 200.0, 300.0, seed=5)
    new = [i for i, history in enumerate(work.history) if not history]
    turns = [work.end[i] - work.first[i] for i in new]
    assert sum(turns) / len(turns) == pytest.approx(shape.turns_mean, rel=0.05)
    assert work.starts == sorted(work.starts)
    assert len(new) == pytest.approx(200.0 / shape.turns_mean * 300.0, rel=0.05)
    assert sorted(work.user)[len(work.user) // 2] == pytest.approx(shape.user_median, rel=0.05)
    popular = sum(work.system[i] == 0 for i in new) / len(new)
    assert popular == pytest.approx(1 / sum(1 / n for n in range(1, shape.n_systems + 1)), rel=0.15)


def test_the_command_prints_a_row_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["fleet", "--machines", "4", "--seconds", "60", "--lost", "0.25"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")][2:]
    assert [line.split("|")[1].strip() for line in rows] == list(POLICIES)
    assert all(len(line.split("|")) == 11 for line in rows)
    for wrong in (["--machines", "0"], ["--lost", "1"], ["--turns", "0.5"]):
        assert program.main(["fleet", *wrong]) == 1
