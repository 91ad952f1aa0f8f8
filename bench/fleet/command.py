"""Simulates a fleet of llamads behind a gateway: how many prompt tokens are computed again, and when first tokens come,
for several ways to distribute conversations. No server is started and nothing is measured."""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from bench.errors import BenchError
from bench.fleet.machine import Speeds
from bench.fleet.policies import POLICIES
from bench.fleet.simulate import AFTER, STEADY, Part, Plan, Result, Simulation
from bench.fleet.workload import Shape, draw

HEAD = (
    "policy",
    "computed again",
    "first token p50, ms",
    "p99",
    "in flight a machine",
    "busiest / mean",
    "after the loss: computed again",
    "p99",
    "restarted",
)


def add_flags(parser: argparse.ArgumentParser) -> None:
    add, shape, speeds = parser.add_argument, Shape(), Speeds()
    add("--machines", type=int, default=1000, help="machines (1000)")
    add("--rate", type=float, default=2.0, help="requests per second for each machine (2)")
    add(
        "--seconds", type=float, default=120.0, help="simulated seconds; the first third is not counted (120)"
    )
    add("--lost", type=float, default=0.01, help="share of the machines that fail after two thirds (0.01)")
    add("--prefill", type=float, default=speeds.prefill, help="prompt tokens/s of a machine (10000)")
    add("--cache", type=int, default=speeds.cache, help="tokens that a machine keeps (524288)")
    add("--think", type=float, default=shape.think_median_s, help="median seconds between turns (25)")
    add("--turns", type=float, default=shape.turns_mean, help="mean turns of a conversation (5)")
    add("--policy", action="append", choices=tuple(POLICIES), help="a policy; may be repeated (all)")
    add("--seed", type=int, default=1, help="seed of all random values (1)")


def check(flags: argparse.Namespace) -> None:
    for name in ("machines", "rate", "seconds", "prefill", "think"):
        if getattr(flags, name) <= 0:
            raise BenchError(f"--{name} must be above 0")
    if flags.turns < 1:
        raise BenchError("--turns must be at least 1")
    if flags.cache < 0:
        raise BenchError("--cache must not be below 0")
    if not 0 <= flags.lost < 1:
        raise BenchError("--lost must be 0 or more, and below 1")


def share(part: Part) -> str:
    return f"{100 * part.n_again / max(1, part.n_prompt):.1f} %"


def milliseconds(part: Part, percent: float) -> str:
    return f"{1000 * np.percentile(part.first_s, percent):,.0f}" if part.first_s else "–"


def row(name: str, result: Result) -> list[str]:
    steady, after = result.parts[STEADY], result.parts[AFTER]
    return [
        name,
        share(steady),
        milliseconds(steady, 50),
        milliseconds(steady, 99),
        f"{np.mean(result.in_flight):.1f}",
        f"{np.mean(result.spreads):.1f}" if result.spreads else "–",
        share(after),
        milliseconds(after, 99),
        f"{result.n_restarted:,}",
    ]


def main(flags: argparse.Namespace) -> int:
    check(flags)
    shape = replace(Shape(), think_median_s=flags.think, turns_mean=flags.turns)
    speeds = replace(Speeds(), prefill=flags.prefill, cache=flags.cache)
    plan = Plan(
        flags.machines, flags.seconds, flags.seconds / 3, flags.seconds * 2 / 3, flags.lost, flags.seed
    )
    workload = draw(shape, flags.rate * flags.machines, flags.seconds, flags.seed)
    print(
        f"Simulated: {flags.machines:,} machines, {flags.rate:g} requests/s each, seed {flags.seed}.",
        flush=True,
    )
    print(f"\n| {' | '.join(HEAD)} |\n|{' --- |' * len(HEAD)}", flush=True)
    t_begun = time.monotonic()
    for name in flags.policy or POLICIES:
        result = Simulation(plan, speeds, workload, POLICIES[name], shape.context).run()
        print(f"| {' | '.join(row(name, result))} |", flush=True)
    print(f"\n{time.monotonic() - t_begun:.0f} s", flush=True)
    return 0
