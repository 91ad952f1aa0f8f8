"""Owns `bench/gpu run`: each point of a scenario on each program in turn, and the file of results that lets it go on.

One program runs at a time, with the device to itself; it is started anew for each point. With --turns, for machines
whose own speed drifts, the servers of a point are loaded side by side and take turns. A result is a line of JSON,
written when it is there; what is in the file is not measured again unless asked for.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import compiled, programs, report
from bench.compiled import Group
from bench.device import build, table, work
from bench.device.deadline import Deadline
from bench.device.work import Point
from bench.errors import BenchError
from bench.programs import Options, Program
from bench.stats import Measures, divide

LEAST_SECONDS = 30.0
SELF_TOKENS = 4_000
# What a result depends on beside its point, its program and the model; the number of rounds it does not.
SETTINGS = (
    "label",
    "path",
    "options",
    "prompt_tokens",
    "shorter",
    "predict",
    "np",
    "ctx",
    "ngl",
    "threads",
    "seed",
    "args",
    "turns",
)
SETTINGS_OF = {
    "gap": ("long_prompt", "arriving"),
    "prefix": ("prefix",),
    "requests": ("connections", "load_threads", "rate", "coined"),
}


def key_of(flags: argparse.Namespace, point: Point, program: str) -> dict[str, Any]:
    names = (*SETTINGS, *SETTINGS_OF.get(flags.scenario, ()))
    model = Path(flags.model)
    return {
        "scenario": flags.scenario,
        "point": point.name,
        "program": program,
        "model": f"{model.name}, {model.stat().st_size} bytes",
        "own_args": own_args(flags, program),
        **{name: getattr(flags, name) for name in names},
    }


def own_args(flags: argparse.Namespace, program: str) -> list[str]:
    if program == table.LLAMAD:
        return list(flags.llamad_args)
    return list(flags.server_args) if program != table.BATCHED else []


class Results:
    """The file of results. The last line of a key counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rounds: dict[str, list[Measures]] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    one = json.loads(line)
                except ValueError:
                    continue  # cut off while it was written
                self._rounds[json.dumps(one["key"], sort_keys=True)] = [
                    {name: math.nan if value is None else value for name, value in measures.items()}
                    for measures in one["rounds"]
                ]

    def get(self, key: dict[str, Any]) -> list[Measures] | None:
        return self._rounds.get(json.dumps(key, sort_keys=True))

    def add(self, key: dict[str, Any], rounds: list[Measures]) -> None:
        self._rounds[json.dumps(key, sort_keys=True)] = rounds
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, "rounds": report.known(rounds)}, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as out:
            out.write(line + "\n")


def shared_args(flags: argparse.Namespace) -> list[str]:
    return ["-fa", "on", "-ngl", str(flags.ngl), *flags.args]


def batched_bench(flags: argparse.Namespace, point: Point) -> list[Measures]:
    """Decoding alone: no sampling, no text, nobody to answer. Each round is one run of it, in one process."""
    n_ctx = point.n_ctx_slot * point.n_streams
    sizes = ["-npp", str(flags.prompt_tokens), "-ntg", str(flags.predict)]
    rounds = ["-npl", ",".join([str(point.n_streams)] * flags.rounds)]
    threads = ["-t", str(flags.threads), "-tb", str(flags.threads)] if flags.threads else []
    model = ["-m", str(flags.model), "-c", str(n_ctx)]
    command = [flags.batched_bench, *model, *sizes, *rounds, *threads, *shared_args(flags)]
    try:
        done = subprocess.run(
            [*command, "--output-format", "jsonl"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BenchError(
            f"{flags.batched_bench} cannot be run ({error.strerror}): see --batched-bench"
        ) from None
    return batched_measures(done.stdout, done.stderr)


def batched_measures(told: str, errors: str) -> list[Measures]:
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    if not lines:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        raise BenchError(f"llama-batched-bench gave no figures: {last}")
    speeds = ("decode_tokens_per_s", "steady_tokens_per_s")
    return [{**dict.fromkeys(speeds, float(one["speed_tg"])), "tokens_per_s": float(one["pl"] * one["tg"] / one["t"])}
            for one in lines]  # fmt: skip


def command_of(flags: argparse.Namespace, program: str, n_connections: int) -> list[str]:
    if program == table.LLAMAD:
        return [*programs.llamad_command(), *flags.llamad_args]
    backend = ["--backend-sampling"] if program == table.SERVER_BS else []
    return [flags.server, *backend, *programs.peer_flags(flags.server, n_connections), *flags.server_args]


def start(flags: argparse.Namespace, point: Point, name: str, folder: Path) -> Program:
    """A server for the point; it is not ready yet."""
    extra = tuple(shared_args(flags))
    n_ctx = point.n_ctx_slot * point.n_slots
    options = Options(str(flags.model), point.n_slots, n_ctx, flags.threads, point.n_connections, extra)
    port = programs.free_port()
    command = command_of(flags, name, point.n_connections)
    return Program(name, [command[0], *options_first(command, options, port)], port, folder / f"log {name}")


def warm_up(flags: argparse.Namespace, point: Point, program: Program) -> None:
    program.wait_ready()
    compiled.streams(program.address[1], point.warm_up, timeout_s=flags.timeout)


def measured(
    flags: argparse.Namespace, point: Point, program: Program, main: Group, n_rounds: int
) -> list[Measures]:
    """Loads a server that is warm."""
    port = program.address[1]
    cpu, t_start = program.cpu_s(), time.monotonic()
    if point.is_requests:
        load = (flags.load_threads, flags.rate)
        rounds = compiled.requests(port, main, flags.seconds, n_rounds, point.side, flags.timeout, *load)
    else:
        rounds = compiled.streams(port, main, n_rounds, point.side, flags.timeout)
    share = (program.cpu_s() - cpu) / (time.monotonic() - t_start)
    return [derived(one) | {"server_cpu": share} for one in rounds]


def served(flags: argparse.Namespace, point: Point, name: str, folder: Path) -> list[Measures]:
    """Starts a server for the point, warms it up, loads it."""
    program = start(flags, point, name, folder)
    try:
        warm_up(flags, point, program)
        return measured(flags, point, program, point.main, flags.rounds)
    except BenchError as error:
        raise BenchError(f"{error}; the last lines of {name}:\n{program.last_lines()}") from None
    finally:
        program.stop()


def in_turns(
    flags: argparse.Namespace, point: Point, names: Sequence[str], folder: Path
) -> dict[str, list[Measures]]:
    """All servers loaded and warm, one at work: A B, B A, A B, ... so that what drifts meets all alike."""
    found: dict[str, list[Measures]] = {name: [] for name in names}
    running: list[Program] = []
    try:
        for name in names:
            running.append(start(flags, point, name, folder))
            warm_up(flags, point, running[-1])
        for i in range(flags.rounds):
            for program in running if i % 2 == 0 else reversed(running):
                found[program.name] += measured(flags, point, program, point.round(i), 1)
    finally:
        for program in running:
            program.stop()
    return found


def options_first(command: list[str], options: Options, port: int) -> list[str]:
    """`python -m llamad` begins with words of its own; flags given by hand come last, and so win."""
    n_own = 2 if command[1:2] == ["-m"] else 0
    return [*command[1 : 1 + n_own], *options.flags(port), *command[1 + n_own :]]


def derived(one: Measures) -> Measures:
    if "gap_p99_ms" not in one:
        return one
    return one | {
        "gap_p99_over_p50": divide(one["gap_p99_ms"], one["gap_p50_ms"]),
        "side_prompts_per_s": divide(one["side_prompt_tokens"], one["wall_s"]),
    }


def programs_for(flags: argparse.Namespace) -> list[str]:
    """Those asked for; decoding alone has no first token to wait for, and no requests."""
    names = flags.programs or list(table.PROGRAMS)
    left_out = [] if flags.scenario == "streams" else [table.BATCHED]
    if flags.scenario != "streams" and not flags.programs:
        left_out.append(table.SERVER_BS)
    wanted = [name for name in names if name not in left_out]
    for name, flag in (
        (table.BATCHED, "batched_bench"),
        (table.SERVER, "server"),
        (table.SERVER_BS, "server"),
    ):
        if name in wanted and not getattr(flags, flag):
            path = build.made().get(flag)
            if path is None:
                raise BenchError(f"no {name}: run `bench/gpu build`, or pass --{flag.replace('_', '-')} PATH")
            setattr(flags, flag, path)
    return wanted


def generator_alone(flags: argparse.Namespace) -> str:
    """What the generator can count when nothing has to be computed."""
    n = max(1, *flags.streams)
    sent = work.bodies(flags, n, 1, SELF_TOKENS)
    (one,) = compiled.streams(None, Group(n, [{**each, "n_predict": SELF_TOKENS} for each in sent]))
    return f"the load generator alone counts {report.number(one['tokens_per_s'])} tokens/s of {n} streams"


def groups(flags: argparse.Namespace, missing: Sequence[str], names: Sequence[str]) -> list[list[str]]:
    """What is measured at once: a program, or with --turns all servers, as soon as one of them is missing."""
    if not flags.turns:
        return [[name] for name in missing]
    servers = [name for name in names if name != table.BATCHED]
    alone = [[name] for name in missing if name == table.BATCHED]
    return [*alone, servers] if set(missing) & set(servers) else alone


def measure(
    flags: argparse.Namespace, point: Point, names: Sequence[str], folder: Path
) -> dict[str, list[Measures]]:
    if list(names) == [table.BATCHED]:
        return {table.BATCHED: batched_bench(flags, point)}
    if flags.turns:
        return in_turns(flags, point, names, folder)
    return {name: served(flags, point, name, folder) for name in names}


def run(flags: argparse.Namespace) -> None:
    deadline = Deadline(flags.minutes)
    results = Results(flags.results)
    names = programs_for(flags)
    print(generator_alone(flags), flush=True)
    longest = LEAST_SECONDS
    found: table.Found = {}
    again = table.PROGRAMS if flags.again == "all" else (flags.again or "").split(",")
    try:
        with tempfile.TemporaryDirectory(prefix="llamad-gpu-") as folder:
            for point in work.points(flags):
                missing = []
                for name in names:
                    rounds = None if name in again else results.get(key_of(flags, point, name))
                    if rounds is None:
                        missing.append(name)
                    else:
                        found[point.name, name] = rounds
                for some in groups(flags, missing, names):
                    deadline.require(longest)
                    t_start = time.monotonic()
                    for name, rounds in measure(flags, point, some, Path(folder)).items():
                        results.add(key_of(flags, point, name), rounds)
                        found[point.name, name] = rounds
                        first = flags.measure or table.COLUMNS[flags.scenario][0]
                        value = report.number(table.middle(rounds, first))
                        print(
                            f"{point.name}, {name}: {value} ({time.monotonic() - t_start:.0f} s)", flush=True
                        )
                    longest = max(longest, 1.3 * (time.monotonic() - t_start))
    finally:
        if found:
            print("\n" + table.whole(flags.scenario, found, flags.measure), flush=True)
