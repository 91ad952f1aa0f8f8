"""Owns how much memory a program takes: loaded, after completions, and with thousands of idle connections.

Runs in the bench's process. Programs are started one at a time, with the same flags and otherwise their defaults.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import cast

import uvloop

from bench import load, programs, prompts, startup, wire
from bench.errors import BenchError
from bench.load import clock
from bench.programs import Options, Program
from bench.scenarios import Section, Work, completion
from bench.stats import Measures

N_COMPLETIONS, N_PREDICT = 64, 16
SPARE_DESCRIPTORS = 200
AT_ONCE = 100  # connections being opened: fewer than any program's backlog
OPEN_SECONDS, ANSWER_SECONDS = 60.0, 20.0
IDLE_SECONDS = 2.0  # less than llama-server keeps an idle connection
N_FRESH = 5
MIB_KIB = 1024


def family(pid: int) -> list[int]:
    """The process and all that came from it."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="ascii", errors="replace")
        except OSError:
            continue  # it has ended meanwhile
        parents[int(stat.parent.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    found = [pid]
    for one in found:  # grows meanwhile
        found += [child for child, parent in parents.items() if parent == one]
    return found


def usage(program: Program, when: str) -> Measures:
    """MiB: RSS as the kernel counts it, PSS (shared pages by halves), and what no file stands behind."""
    sums = {"Rss": 0, "Pss": 0, "Anonymous": 0}
    for pid in family(program.pid):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name in sums:
                sums[name] += int(rest.split()[0])
    keys = {"Rss": "rss", "Pss": "pss", "Anonymous": "own"}
    return {f"{when}_{key}": sums[name] / MIB_KIB for name, key in keys.items()}


def n_threads(program: Program) -> int:
    return len(list(Path(f"/proc/{program.pid}/task").iterdir()))


class _Idle(asyncio.Protocol):
    """A connection that asks when told, and counts answers."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.n_answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.n_answers += data.count(b"HTTP/1.1 200")

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None

    def ask(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)


async def _open(program: Program, n: int, data: bytes) -> list[_Idle]:
    """So many connections, each of which has asked once. Those that cannot be opened in time are missing."""
    loop = asyncio.get_running_loop()
    turn = asyncio.Semaphore(AT_ONCE)
    found: list[_Idle] = []

    async def one() -> None:
        async with turn:
            try:
                _, protocol = await loop.create_connection(_Idle, *program.address)
            except OSError:
                return
            found.append(protocol)
            protocol.ask(data)

    tasks = [asyncio.ensure_future(one()) for _ in range(n)]
    _, late = await asyncio.wait(tasks, timeout=OPEN_SECONDS)
    for task in late:
        task.cancel()
    return found


async def _count(idle: list[_Idle], n_answers: int) -> int:
    """How many have so many answers, at the latest when the time is over."""
    t_end = clock() + int(ANSWER_SECONDS * 1e9)
    while True:
        n = sum(one.n_answers >= n_answers for one in idle)
        if n == len(idle) or clock() > t_end:
            return n
        await asyncio.sleep(0.05)


def _fresh(program: Program) -> Measures:
    times = []
    for _ in range(N_FRESH):
        t_start = clock()
        if startup.health(program).startswith(b"HTTP/1.1 200"):
            times.append((clock() - t_start) / 1e6)
    return {"fresh_ms": median(times) if times else float("nan"), "fresh_failed": float(N_FRESH - len(times))}


async def _with_idle(program: Program, n: int) -> Measures:
    data = wire.request("GET", "/health", "bench")
    idle = await _open(program, n, data)
    measures: Measures = {"idle_answered": float(await _count(idle, 1))}
    await asyncio.sleep(IDLE_SECONDS)
    measures |= usage(program, "idle") | {"idle_threads": float(n_threads(program))}
    measures |= await asyncio.get_running_loop().run_in_executor(None, _fresh, program)
    for one in idle:
        one.ask(data)
    measures["idle_again"] = float(await _count(idle, 2))
    for one in idle:
        if one.transport is not None:
            one.transport.abort()
    return measures


def measure(program: Program, options: Options, work: Work, n_idle: int) -> Measures:
    program.wait_ready()
    measures = usage(program, "loaded")
    texts = prompts.texts(N_COMPLETIONS, work.n_prompt, work.seed)
    requests = [completion(program, text, N_PREDICT, work.seed, work.sampling) for text in texts]
    plans = [requests[i :: options.n_slots] for i in range(min(options.n_slots, N_COMPLETIONS))]
    load.run_streams(program.address, plans, work.timeout_s)
    measures |= usage(program, "worked")
    return measures | uvloop.run(_with_idle(program, n_idle))


def raise_descriptors(n_wanted: int) -> None:
    """For this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= n_wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < n_wanted:
        raise BenchError(f"{n_wanted} descriptors are needed, {hard} are allowed: lower --idle-connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_wanted, hard))


def memory(options: Options, server: str | None, work: Work, n_idle: int, folder: Path) -> Section:
    raise_descriptors(n_idle + SPARE_DESCRIPTORS)
    rounds: dict[str, list[Measures]] = {}
    for name in programs.turns(server, 1):
        # llamad refuses more than 10,000 unless it is told otherwise, and a few come on top.
        room = ("--connections-max", str(n_idle + SPARE_DESCRIPTORS)) if name == programs.LLAMAD else ()
        program = programs.start(name, replace(options, extra=room), server, folder)
        try:
            rounds[name] = [measure(program, options, work, n_idle)]
        finally:
            program.stop()
    title = (
        f"memory, {options.n_slots} slots of {options.n_ctx // options.n_slots} tokens: {N_COMPLETIONS} completions, "
        f"then {n_idle:,} idle connections"
    )
    return Section(title, rounds)
