"""Compares another installation of llamad, such as a wheel's, with this one: CPU time of short requests, in turns.

What else runs on a machine can only make a request longer. So the requests are many and short, and what counts is the
time that nine of ten exceed. All threads of the programs' processes are counted, to the nanosecond.
"""

from __future__ import annotations

import argparse
import random
import shlex
import tempfile
import time
from pathlib import Path

from bench import programs
from bench.client import Client
from bench.programs import Options, Program, family, free_port

N_PREDICT = 12
PROMPT_TOKENS = 48
REST_SECONDS = 0.01  # until the threads have gone to sleep
CPU_CLOCK = 2  # CPUCLOCK_SCHED: to the nanosecond
N_WARM = 2  # rounds that are not counted
PERCENTILES = (10, 50)
OPTIONS = ("-fa", "on", "--cache-ram", "0")


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, help="the GGUF file")
    add("--other", type=shlex.split, required=True, help="the other llamad: its path, and flags if need be")
    add("--rounds", type=int, default=100, help="requests of each kind to each program (100)")
    add("--threads", type=int, default=1, help="-t (1)")
    add("--ids", type=int, default=30000, help="prompts have token ids below this (30000)")


def cpu_ms(pids: list[int]) -> float:
    """Return the CPU time of all threads that these processes have had. Linux has a clock for each process; its
    number is the one that clock_getcpuclockid() returns."""
    return sum(time.clock_gettime_ns((~pid << 3) | CPU_CLOCK) for pid in pids) / 1e6


class Installed:
    """A running installation, and the CPU times of its requests in milliseconds."""

    def __init__(self, name: str, command: list[str], options: Options, logs: Path) -> None:
        port = free_port()
        self.program = Program(name, [*command, *options.flags(port)], port, logs / f"{name}.log")
        self.ms: dict[str, list[float]] = {"decode": [], "prefill": []}

    def ready(self) -> None:
        self.program.wait_ready()
        self._pids = family(self.program.pid)
        self._client = Client(self.program.address, timeout_s=600.0)

    def ask(self, kind: str, prompt: list[int], n_predict: int) -> None:
        before = cpu_ms(self._pids)
        body = {"prompt": prompt, "n_predict": n_predict, "temperature": 0.0}
        self._client.ask("/completion", body | {"cache_prompt": False, "ignore_eos": True, "stream": False})
        time.sleep(REST_SECONDS)
        self.ms[kind].append(cpu_ms(self._pids) - before)

    def percentile(self, kind: str, percent: int) -> float:
        counted = sorted(self.ms[kind][N_WARM:])
        return counted[len(counted) * percent // 100]


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    options = Options(flags.model, 1, 2048, flags.threads, 1, OPTIONS)
    draw = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="llamad-installed-") as logs:
        this = Installed("this", programs.llamad_command(), options, Path(logs))
        both = [this, Installed("other", flags.other, options, Path(logs))]
        try:
            for one in both:
                one.ready()
            for _ in range(N_WARM + flags.rounds):
                short = [draw.randrange(100, flags.ids) for _ in range(4)]
                long = [draw.randrange(100, flags.ids) for _ in range(PROMPT_TOKENS)]
                both.reverse()
                for one in both:
                    one.ask("decode", short, N_PREDICT)
                for one in both:
                    one.ask("prefill", long, 1)
        finally:
            for one in both:
                one.program.stop()
    both.sort(key=lambda one: one is not this)
    print(
        "| CPU time | percentile | this, ms | other, ms | speed of the other |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for kind, what in (("decode", f"{N_PREDICT} tokens decoded"), ("prefill", f"prompt of {PROMPT_TOKENS}")):
        for percent in PERCENTILES:
            ours, theirs = (one.percentile(kind, percent) for one in both)
            print(f"| {what} | {percent} | {ours:,.1f} | {theirs:,.1f} | {ours / theirs:.3f} |")
    return 0
