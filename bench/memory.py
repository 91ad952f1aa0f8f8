"""Measures how much memory a program takes: loaded, after completions, and with thousands of idle connections.

Runs in the bench's process. Programs are started one at a time, with the same flags and otherwise their defaults.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import cast

import uvloop

from bench import client, load, scenarios, startup
from bench.client import clock
from bench.errors import BenchError
from bench.harness import Point
from bench.load import Group
from bench.programs import LLAMAD, Options, Program, family
from bench.prompts import Prompts
from bench.stats import Measures

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
N_COMPLETIONS, N_PREDICT = 64, 16
SPARE_DESCRIPTORS = 200
AT_ONCE = 100  # connections that are opened at once; fewer than any program's backlog
OPEN_SECONDS, ANSWER_SECONDS = 60.0, 20.0
IDLE_SECONDS = 2.0  # shorter than llama-server's keep-alive timeout
N_FRESH = 5
MIB_KIB = 1024


def usage(program: Program, when: str) -> Measures:
    """Return MiB of RSS, PSS (in which shared pages count in shares), and memory that is not backed by a file."""
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
    """A connection that sends a request when ask() is called, and counts responses."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.n_answers = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.n_answers += data.count(b"HTTP/1.1 200")

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None

    def ask(self) -> None:
        if self.transport is not None:
            self.transport.write(HEALTH)


async def _open(program: Program, n: int) -> list[_Idle]:
    """Open n connections that each send one request; return those that could be opened in time."""
    loop = asyncio.get_running_loop()
    turn = asyncio.Semaphore(AT_ONCE)
    opened: list[_Idle] = []

    async def one() -> None:
        async with turn:
            try:
                _, protocol = await loop.create_connection(_Idle, *program.address)
            except OSError:
                return
            opened.append(protocol)
            protocol.ask()

    tasks = [asyncio.ensure_future(one()) for _ in range(n)]
    _, late = await asyncio.wait(tasks, timeout=OPEN_SECONDS)
    for task in late:
        task.cancel()
    return opened


async def _count(idle: list[_Idle], n_answers: int) -> int:
    """Wait until all connections have `n_answers` responses, or the time is over; return how many have."""
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
        if client.health(program.address):
            times.append((clock() - t_start) / 1e6)
    return {"fresh_ms": median(times) if times else float("nan"), "fresh_failed": float(N_FRESH - len(times))}


async def _with_idle(program: Program, n: int) -> Measures:
    idle = await _open(program, n)
    measures: Measures = {"idle_answered": float(await _count(idle, 1))}
    await asyncio.sleep(IDLE_SECONDS)
    measures |= usage(program, "idle") | {"idle_threads": float(n_threads(program))}
    measures |= await asyncio.get_running_loop().run_in_executor(None, _fresh, program)
    for one in idle:
        one.ask()
    measures["idle_again"] = float(await _count(idle, 2))
    for one in idle:
        if one.transport is not None:
            one.transport.abort()
    return measures


def raise_descriptors(n_needed: int) -> None:
    """Raise the limit of open descriptors for this process and those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= n_needed:
        return
    if hard != resource.RLIM_INFINITY and hard < n_needed:
        raise BenchError(f"{n_needed} descriptors are needed, {hard} are allowed: lower --idle-connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_needed, hard))


class MemoryPoint(Point):
    is_fresh = True

    def __init__(self, flags: argparse.Namespace, n_slots: int, prompts: Prompts) -> None:
        options = startup.slot_options(flags, n_slots)
        n_ctx = options.n_ctx // n_slots
        name = f"{n_slots} slot{'s' if n_slots > 1 else ''} of {n_ctx} tokens, {flags.idle_connections:,} connections"
        super().__init__(name, options, n_rounds=1)
        self._flags = flags
        self._prompts = prompts

    def options_of(self, name: str) -> Options:
        """Return the options; llamad needs a flag, because it refuses more than 10,000 connections by default."""
        if name != LLAMAD:
            return self.options
        room = ("--connections-max", str(self._flags.idle_connections + SPARE_DESCRIPTORS))
        return replace(self.options, extra=(*self.options.extra, *room))

    def measure(self, program: Program, index: int) -> Measures:
        flags, n_slots = self._flags, self.options.n_slots
        raise_descriptors(flags.idle_connections + SPARE_DESCRIPTORS)
        program.wait_ready()
        measures = usage(program, "loaded")
        self._prompts.learn(program.client)
        texts = [self._prompts.prompt(i, flags.prompt_tokens) for i in range(N_COMPLETIONS)]
        sent = [scenarios.body(flags, i, text, N_PREDICT) for i, text in enumerate(texts)]
        n = min(n_slots, N_COMPLETIONS)
        group = Group(n, sent, flags.endpoint)
        load.streams(program.port, group, timeout_s=flags.timeout, n_each=N_COMPLETIONS // n)
        measures |= usage(program, "worked")
        return measures | uvloop.run(_with_idle(program, flags.idle_connections))


def points(flags: argparse.Namespace, prompts: Prompts) -> list[Point]:
    return [MemoryPoint(flags, n, prompts) for n in flags.slots]
