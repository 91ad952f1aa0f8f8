"""Owns what is measured: streams of completions, small requests, and whether both programs write the same text.

Runs in the bench's process. Programs take turns: only one has work at a time, and each round swaps who is first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import load, prompts, stats, wire
from bench.load import Run
from bench.programs import Pair, Program, machine_cpu_s
from bench.stats import Measures

# Texts of different purpose come from different parts of the same row.
WARM_UP_START, CHECK_START = 1_000_000, 2_000_000
WARM_UP_PREDICT = 8


@dataclass(frozen=True, slots=True)
class Work:
    """What each program is asked to do."""

    n_prompt: int
    n_predict: int
    n_requests: int  # of each stream, in each round
    n_rounds: int
    n_connections: int
    seconds: float
    seed: int
    timeout_s: float
    sampling: dict[str, float] = field(default_factory=dict)

    @property
    def n_predict_most(self) -> int:
        return self.n_predict + self.n_predict // 4


@dataclass(slots=True)
class Section:
    """One table: a measure of each round for each program."""

    title: str
    rounds: dict[str, list[Measures]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Same:
    """Whether one prompt was answered with one text."""

    title: str
    is_same: bool
    detail: str


def completion(program: Program, text: str, n_predict: int, seed: int, sampling: dict[str, float]) -> bytes:
    """A streamed completion that starts from nothing and does not end early."""
    body: dict[str, Any] = {
        "prompt": text,
        "n_predict": n_predict,
        "stream": True,
        "cache_prompt": False,
        "ignore_eos": True,
        "return_tokens": True,
        "seed": seed,
        **sampling,
    }
    return wire.request("POST", "/completion", f"{program.address[0]}:{program.address[1]}", body)


def in_turns(
    pair: Pair,
    n_rounds: int,
    drive: Callable[[Program, int], Run],
    digest: Callable[[Program, Run], Measures],
) -> dict[str, list[Measures]]:
    """A, B, B, A, ...: what drifts meets both alike. `drive` is timed; `digest` looks at its run afterwards."""
    rounds: dict[str, list[Measures]] = {program.name: [] for program in pair.programs}
    for index in range(n_rounds):
        order = pair.programs if index % 2 == 0 else pair.programs[::-1]
        for program in order:
            before = {one.name: one.cpu_s() for one in pair.programs}
            machine_before = machine_cpu_s()
            run = drive(program, index)
            machine = (machine_cpu_s() - machine_before) / run.wall_s
            used = {one.name: (one.cpu_s() - before[one.name]) / run.wall_s for one in pair.programs}
            shares = {"server_cpu": used[program.name], "generator_cpu": run.cpu_s / run.wall_s}
            if len(used) > 1:
                shares["bystander_cpu"] = sum(used.values()) - used[program.name]
            shares["elsewhere_cpu"] = max(0.0, machine - sum(used.values()) - shares["generator_cpu"])
            rounds[program.name].append(digest(program, run) | shares)
    return rounds


def plan_streams(work: Work, program: Program, n_streams: int, index: int) -> list[list[bytes]]:
    """The requests of one round. Lengths differ by up to a quarter, so that streams do not run in step; every
    program gets the same."""
    rng = random.Random(f"{work.seed}/{n_streams}/{index}")
    n = n_streams * work.n_requests
    texts = prompts.texts(n, work.n_prompt, work.seed, start=index * n)
    quarter = work.n_predict // 4
    requests = [
        completion(
            program, text, work.n_predict + rng.randint(-quarter, quarter), work.seed + i, work.sampling
        )
        for i, text in enumerate(texts)
    ]
    return [requests[i::n_streams] for i in range(n_streams)]


def warm_up(pair: Pair, work: Work, n_streams: int) -> None:
    """Pages of the model are read, graphs are built, budgets are learnt before anything is timed."""
    texts = prompts.texts(n_streams, work.n_prompt, work.seed, WARM_UP_START)
    for program in pair.programs:
        plans = [[completion(program, text, WARM_UP_PREDICT, work.seed, work.sampling)] for text in texts]
        load.run_streams(program.address, plans, work.timeout_s)


def generate(pair: Pair, work: Work, n_streams: int) -> Section:
    """Concurrent streams, each asking again as soon as it is answered."""
    n_prompts: list[int] = []

    def drive(program: Program, index: int) -> Run:
        plans = plan_streams(work, program, n_streams, index)
        return load.run_streams(program.address, plans, work.timeout_s)

    def digest(program: Program, run: Run) -> Measures:
        streams = [wire.stream(exchange) for exchange in run.exchanges]
        n_prompts.extend(stream.n_prompt for stream in streams)
        return stats.of_streams(run, streams)

    warm_up(pair, work, n_streams)
    rounds = in_turns(pair, work.n_rounds, drive, digest)
    title = (
        f"generate, {n_streams} stream{'s' if n_streams > 1 else ''}: {work.n_rounds} rounds of "
        f"{n_streams * work.n_requests} requests, prompts of {sum(n_prompts) // len(n_prompts)} tokens, "
        f"{work.n_predict} predicted"
    )
    return Section(title, rounds)


def small_requests(
    pair: Pair, work: Work, method: str, path: str, bodies: Sequence[Any] = (None,)
) -> Section:
    """Requests that need no step of the model, on keep-alive connections."""
    n_reopened: dict[str, int] = {}

    def drive(program: Program, _: int) -> Run:
        host = f"{program.address[0]}:{program.address[1]}"
        data = [wire.request(method, path, host, body) for body in bodies]
        return load.run_requests(program.address, data, work.n_connections, work.seconds, work.timeout_s)

    def digest(program: Program, run: Run) -> Measures:
        n = run.n_connects - work.n_connections
        n_reopened[program.name] = n_reopened.get(program.name, 0) + n
        return stats.of_requests(run)

    rounds = in_turns(pair, work.n_rounds, drive, digest)
    title = (
        f"requests, {method} {path}: {work.n_rounds} rounds of {work.seconds:g} s on "
        f"{work.n_connections} connections"
    )
    notes = [f"{name} closed {n} connections meanwhile" for name, n in n_reopened.items() if n]
    return Section(title, rounds, notes)


def first_difference(ours: str, theirs: str) -> int:
    """The index of the first character that differs; of equal texts their length."""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    return min(len(ours), len(theirs)) if at is None else at


def compare(title: str, ours: str, theirs: str) -> Same:
    if ours == theirs:
        return Same(title, True, f"{len(ours)} characters")
    at = first_difference(ours, theirs)
    cut = slice(max(0, at - 20), at + 20)
    return Same(title, False, f"from character {at} on: llamad {ours[cut]!r}, llama-server {theirs[cut]!r}")


def same_text(pair: Pair, work: Work, lengths: Sequence[int]) -> list[Same]:
    """One request at a time, nothing cached: the contract promises llama-server's text, greedy and seeded."""
    if len(pair.programs) < 2:
        return []
    found = []
    index = CHECK_START
    for name, sampling in (("temperature 0", {"temperature": 0.0}), (f"seed {work.seed}, defaults", {})):
        for n_prompt in lengths:
            index += 1
            text = prompts.text(index, n_prompt, work.seed)
            contents = []
            for program in pair.programs:
                data = completion(program, text, work.n_predict, work.seed, sampling)
                run = load.run_streams(program.address, [[data]], work.timeout_s)
                contents.append(wire.stream(run.exchanges[0]).content)
            found.append(compare(f"{name}, prompt of {n_prompt}", contents[0], contents[1]))
    return found
