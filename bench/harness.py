"""Measures a point: starts programs, waits until they are ready, warms them up, and runs rounds on one at a time.

Runs in the bench's process. The point decides what is sent and which measures result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.client import clock
from bench.errors import BenchError
from bench.programs import Options, Program, Programs, machine_cpu_s
from bench.stats import Measures, divide


class Point(ABC):
    """A row of the report: how servers are started for it, and one round of its load."""

    def __init__(self, name: str, options: Options, n_rounds: int) -> None:
        self.name = name
        self.options = options
        self.n_rounds = n_rounds

    is_fresh = False  # each round has a new server, for which `measure` waits
    n_discarded = 0  # how many first rounds do not count, because they load files into the page cache

    def options_of(self, name: str) -> Options:
        return self.options

    def prepare(self, program: Program) -> None:  # noqa: B027, most have a warm-up, some need none
        """Prepare a program once, when it is ready. Nothing is timed."""

    @abstractmethod
    def measure(self, program: Program, index: int) -> Measures:
        """Run one round."""


class CpuShares:
    """CPU shares over all rounds of one program, because CPU times have ticks of 10 ms, and a round may be shorter."""

    def __init__(self) -> None:
        self._wall_s = self._own_s = self._others_s = self._machine_s = 0.0

    def measure(self, point: Point, program: Program, running: Sequence[Program], index: int) -> Measures:
        before = [one.cpu_s() for one in running]
        machine, t_start = machine_cpu_s(), clock()
        try:
            measures = point.measure(program, index)
        except BenchError as error:
            lines = program.last_lines()
            raise BenchError(f"{error}; the last lines of {program.name}:\n{lines}") from None
        self._wall_s += (clock() - t_start) / 1e9
        self._machine_s += machine_cpu_s() - machine
        used = {one: one.cpu_s() - cpu for one, cpu in zip(running, before, strict=True)}
        self._own_s += used.pop(program)
        self._others_s += sum(used.values())
        return measures

    def shares(self, generator: float, has_others: bool) -> Measures:
        out = {"server_cpu": divide(self._own_s, self._wall_s)}
        if has_others:
            out["bystander_cpu"] = divide(self._others_s, self._wall_s)
        rest = divide(self._machine_s - self._own_s - self._others_s, self._wall_s) - generator
        return out | {"elsewhere_cpu": max(0.0, rest)}


def in_turns(names: Sequence[str], n_rounds: int) -> Iterator[tuple[int, str]]:
    """Yield the programs as A B, B A, A B, ..., so that drift affects all alike."""
    for index in range(n_rounds):
        for name in names if index % 2 == 0 else reversed(names):
            yield index, name


def measure(
    point: Point, names: Sequence[str], programs: Programs, turns: bool, folder: Path
) -> dict[str, list[Measures]]:
    """Return the rounds of each program. With `turns`, all are loaded at once and alternate their rounds."""
    if point.is_fresh:
        return _fresh_rounds(point, names, programs, folder)
    if turns:
        return _loaded_rounds(point, names, programs, folder)
    return {name: _loaded_rounds(point, [name], programs, folder)[name] for name in names}


def _fresh_rounds(
    point: Point, names: Sequence[str], programs: Programs, folder: Path
) -> dict[str, list[Measures]]:
    rounds: dict[str, list[Measures]] = {name: [] for name in names}
    for index, name in in_turns(names, point.n_rounds + point.n_discarded):
        program = programs.start(name, point.options_of(name), folder)
        try:
            measures = point.measure(program, index)
        finally:
            program.stop()
        if index >= point.n_discarded:
            rounds[name].append(measures)
    return rounds


def _loaded_rounds(
    point: Point, names: Sequence[str], programs: Programs, folder: Path
) -> dict[str, list[Measures]]:
    results: dict[str, list[Measures]] = {name: [] for name in names}
    cpu = {name: CpuShares() for name in names}
    running: dict[str, Program] = {}
    try:
        for name in names:
            running[name] = programs.start(name, point.options_of(name), folder)
            running[name].wait_ready()
            point.prepare(running[name])
        for index, name in in_turns(names, point.n_rounds):
            some = list(running.values())
            results[name].append(cpu[name].measure(point, running[name], some, index))
    finally:
        for program in running.values():
            program.stop()
    for name, rounds in results.items():
        generator = sum(one.get("generator_cpu", 0.0) for one in rounds) / len(rounds)
        shares = cpu[name].shares(generator, len(names) > 1)
        results[name] = [one | shares for one in rounds]
    return results
