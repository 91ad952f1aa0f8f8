"""Measures llamad and, if it is installed, llama-server: with the same model, requests and options, one at a time.

bench/README.md explains the scenarios and how to read the result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import batched, harness, load, memory, report, scenarios, startup
from bench.deadline import Deadline
from bench.flags import add_flags, check, filled, scenarios_of
from bench.harness import Point
from bench.load import Group
from bench.programs import BATCHED, LLAMA_SERVER, LLAMA_SERVER_BS, LLAMAD, NAMES, Programs
from bench.prompts import Prompts
from bench.report import Found
from bench.results import Results, key_of
from bench.scenarios import MEASURES
from bench.stats import Measures, middle

__all__ = ["add_flags", "main"]

LEAST_SECONDS = 30.0
SELF_TOKENS = 4_000
WITHOUT_LOAD = ("idle", "startup", "memory")


def programs_for(flags: argparse.Namespace, there: Programs) -> list[str]:
    """Return the requested programs, else those that are installed. batched-bench only measures tokens/s, and has no
    adapters."""
    names: list[str] = flags.programs or []
    if not names:
        bounds = (BATCHED, LLAMA_SERVER_BS) if flags.scenario == "tokens" and not flags.cpu else ()
        names = [name for name in NAMES if name in (*bounds, LLAMA_SERVER, LLAMAD) and there.path(name)]
    names = [name for name in names if name != BATCHED or (flags.scenario == "tokens" and not flags.lora)]
    for name in names:
        there.require(name)
    return names


def points_for(flags: argparse.Namespace) -> list[Point]:
    if flags.scenario == "startup":
        return startup.points(flags)
    prompts = Prompts(flags.texts, flags.seed, flags.endpoint, flags.ids, flags.coined)
    if flags.scenario == "memory":
        return memory.points(flags, prompts)
    return scenarios.points(flags, prompts)


def generator_alone(each: Sequence[argparse.Namespace]) -> None:
    """Print how many tokens/s the generator can count when nothing has to be computed."""
    loads = [flags for flags in each if flags.scenario not in WITHOUT_LOAD]
    if loads:
        n = max(1, *(n for flags in loads for n in flags.streams))
        bodies = [{"prompt": "one", "n_predict": SELF_TOKENS, "stream": True}] * n
        speed = load.streams(None, Group(n, bodies))["tokens_per_s"]
        print(f"the load generator alone counts {report.number(speed)} tokens/s of {n} streams\n", flush=True)


def groups(
    flags: argparse.Namespace, point: Point, missing: Sequence[str], all_of: Sequence[str]
) -> list[list[str]]:
    """Return the programs that are measured together: one, or with turns all servers if one of them is missing."""
    alone = [[name] for name in missing if name == BATCHED]
    servers = [name for name in all_of if name != BATCHED]
    if not set(missing) & set(servers):
        return alone
    return [*alone, *([servers] if flags.turns or point.is_fresh else [[n] for n in missing if n != BATCHED])]


class Scenario:
    """Measures all points of one scenario, unless the file of results has them."""

    def __init__(self, flags: argparse.Namespace, there: Programs, deadline: Deadline, folder: Path) -> None:
        self.flags = flags
        self.found: Found = {}
        self._there = there
        self._names = programs_for(flags, there)
        self._deadline = deadline
        self._folder = folder
        self._results = Results(flags.results)
        self._longest_s = LEAST_SECONDS

    def run(self) -> None:
        for index, point in enumerate(points_for(self.flags)):
            missing = [name for name in self._names if not self._is_known(point, name)]
            for some in groups(self.flags, point, missing, self._names):
                self._deadline.require(self._longest_s)
                self._measure(point, some, index)

    def _is_known(self, point: Point, name: str) -> bool:
        """Return whether there is an earlier result. Only a run with a time limit uses those."""
        again = self.flags.again
        if self.flags.minutes == float("inf") or again == "all" or name in (again or "").split(","):
            return False
        rounds = self._results.get(key_of(self.flags, point.name, name))
        if rounds is not None:
            self.found[point.name, name] = rounds
            print(f"{point.name}, {name}: from an earlier run (--again measures it again)")
        return rounds is not None

    def _measure(self, point: Point, some: Sequence[str], index: int) -> None:
        flags, t_start = self.flags, time.monotonic()
        measured: dict[str, list[Measures]]
        if list(some) == [BATCHED]:
            path = self._there.require(BATCHED)
            measured = {BATCHED: batched.measure(path, flags, point, flags.streams[index])}
        else:
            measured = harness.measure(point, some, self._there, flags.turns, self._folder)
        first = flags.measure or MEASURES[flags.scenario][0]
        for name, rounds in measured.items():
            self._results.add(key_of(flags, point.name, name), rounds)
            self.found[point.name, name] = rounds
            value, seconds = report.number(middle(rounds, first)), time.monotonic() - t_start
            print(f"{point.name}, {name}: {value} ({seconds:.0f} s)", flush=True)
        self._longest_s = max(self._longest_s, 1.3 * (time.monotonic() - t_start))


def setup_of(flags: argparse.Namespace) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    return {
        "machine": f"{platform.machine()}, {cores} cores, Python {platform.python_version()}",
        "model": Path(flags.model).name,
        "flags": {name: str(v) if isinstance(v, Path | range) else v for name, v in vars(flags).items()},
    }


def main(flags: argparse.Namespace) -> int:
    each = [filled(flags, name) for name in scenarios_of(flags)]
    for one in each:
        check(one)
    own = {LLAMAD: flags.llamad_args, LLAMA_SERVER: flags.server_args, LLAMA_SERVER_BS: flags.server_args}
    there = Programs(flags.server, flags.batched_bench, own)
    setup = setup_of(each[0])
    print(f"{setup['model']}, {setup['machine']}", flush=True)
    generator_alone(each)
    deadline = Deadline(each[0].minutes)
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory(prefix="llamad-bench-") as folder:
        for one in each:
            scenario = Scenario(one, there, deadline, Path(folder))
            found[one.scenario] = scenario.found
            try:
                scenario.run()
            finally:
                if scenario.found:
                    print(
                        "\n" + report.whole(one.scenario, scenario.found, one.measure, one.turns), flush=True
                    )
    if flags.json is not None:
        text = json.dumps(report.as_json(setup, found), indent=2, allow_nan=False) + "\n"
        flags.json.write_text(text, encoding="utf-8")
    if there.path(LLAMA_SERVER) is None:
        print(report.ALONE)
    return 0
