"""Measures the gaps of streams that decode steadily while other conversations are saved and restored.

More conversations than free slots continue in turns, so that each turn saves one of them in the prompt cache and
restores another. With --unified, llamad saves only what is new of a conversation, so that a turn moves one state, not
two. First the streams run without that, for as long as the turns will take.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shlex
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import programs
from bench.client import HEALTH_SECONDS, Client, clock
from bench.errors import BenchError
from bench.programs import LLAMAD, Options, Program, Programs

QUESTION_TOKENS = 16
PROMPT_TOKENS = 32  # of a stream
MIB = 1 << 20
COLUMNS = "| program | streams | turns | MiB moved | computed again | median gap, ms | longest gap, ms |"


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--streams", type=int, default=4, help="streams whose gaps are measured (4)")
    add("--free", type=int, default=1, help="slots for the conversations (1)")
    add("--conversations", type=int, default=3, help="conversations that take turns in them (3)")
    add("--tokens", type=int, default=8000, help="tokens of each (8000)")
    add("--mib", type=int, default=2048, help="MiB to save and restore together, at least (2048)")
    add("--unified", action="store_true", help="one cache for all slots (--kv-unified)")
    add("--threads", type=int, help="-t (the program's own choice)")
    add("--ids", type=int, default=32000, help="prompts have token ids below this (32000)")
    add("--args", type=shlex.split, default=["-ngl", "99"], help="flags for all programs (-ngl 99)")
    programs.add_choice(parser)
    add("--seed", type=int, default=1)


class Stream:
    """A stream that decodes without end, and the times at which its tokens arrived."""

    def __init__(self, program: Program, prompt: list[int], slot: int) -> None:
        self.times: list[int] = []
        self.error = ""
        self._connection = HTTPConnection(*program.address, timeout=HEALTH_SECONDS * 60)
        self._is_over = False
        body = {"prompt": prompt, "id_slot": slot, "n_predict": 1_000_000, "n_keep": -1}
        self._body = json.dumps({**body, "ignore_eos": True, "stream": True})
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self._connection.request("POST", "/completion", self._body, {"Content-Type": "application/json"})
            for line in self._connection.getresponse():
                if line.startswith(b"data: "):
                    self.times.append(clock())
                if self._is_over:
                    break
            else:
                self.error = "a stream ended by itself"
        except (OSError, HTTPException) as error:
            self.error = f"a stream failed: {error}"
        self._connection.close()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()

    def gaps_ms(self, t_begin: int, t_end: int) -> list[float]:
        times = [t for t in self.times if t_begin <= t <= t_end]
        return [(after - before) / 1e6 for before, after in pairwise(times)]


@dataclass(slots=True)
class Turns:
    """What the turns of the conversations did."""

    n: int = 0
    n_prompt: int = 0
    n_again: int = 0  # tokens that were computed although they are not new
    texts: list[list[int]] = field(default_factory=list)


class Run:
    """One program. The conversations are read before anything is measured."""

    def __init__(self, program: Program, flags: argparse.Namespace) -> None:
        self.program = program
        self.flags = flags
        self.draw = random.Random(flags.seed)
        self.client = Client(program.address)
        self.turns = Turns(texts=[self.ids(flags.tokens) for _ in range(flags.conversations)])

    def ids(self, n: int) -> list[int]:
        return [self.draw.randrange(100, self.flags.ids) for _ in range(n)]

    def turn(self) -> None:
        """Continue the conversation that has waited longest."""
        text = self.turns.texts.pop(0) + self.ids(QUESTION_TOKENS)
        slot = self.flags.streams + self.turns.n % self.flags.free
        body = {"prompt": text, "id_slot": slot, "n_predict": 1, "temperature": 0.0, "cache_prompt": True}
        timings: dict[str, Any] = self.client.ask("/completion", body)["timings"]
        self.turns.n += 1
        self.turns.n_prompt += len(text)
        self.turns.n_again += max(0, timings["prompt_n"] - QUESTION_TOKENS - 1)
        self.turns.texts.append(text)

    def state_mib(self) -> float:
        """Return the mean size of the conversations in llamad's cache. With --unified all are there, in parts."""
        connection = HTTPConnection(*self.program.address, timeout=HEALTH_SECONDS)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        values = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        n = float(values["llamad:prompt_cache_entries"])
        if n and self.flags.unified:
            n = self.flags.conversations
        if not n:
            raise BenchError("no conversation was saved: use more --conversations or --tokens")
        return float(values["llamad:prompt_cache_bytes"]) / n / MIB

    def measure(self, n_turns: int) -> tuple[int, list[str]]:
        """Return the number of turns, which is chosen if it is 0, and the rows of the table."""
        flags = self.flags
        for _ in range(2 * flags.conversations):  # the second time, each has been saved and restored
            t_turn = clock()
            self.turn()
            turn_s = (clock() - t_turn) / 1e9
        mib = self.state_mib() if self.program.name == LLAMAD else 0.0
        mib_turn = mib if flags.unified else 2 * mib
        n_turns = n_turns or max(1, math.ceil(flags.mib / mib_turn))
        self.turns = Turns(texts=self.turns.texts)
        streams = [Stream(self.program, self.ids(PROMPT_TOKENS), i) for i in range(flags.streams)]
        while any(len(one.times) < 4 and not one.error for one in streams):
            time.sleep(0.01)
        t_begin = clock()
        time.sleep(max(3.0, n_turns * turn_s))
        t_turns = clock()
        for _ in range(n_turns):
            self.turn()
        t_end = clock()
        for one in streams:
            one.stop()
        errors = [one.error for one in streams if one.error]
        if errors:
            raise BenchError(errors[0])
        moved = mib_turn * n_turns
        again = self.turns.n_again / self.turns.n_prompt
        return n_turns, [
            self._row(streams, "0 | 0 | –", t_begin, t_turns),
            self._row(
                streams, f"{n_turns} | {f'{moved:,.0f}' if mib else '–'} | {again:.2%}", t_turns, t_end
            ),
        ]

    def _row(self, streams: list[Stream], middle: str, t_begin: int, t_end: int) -> str:
        gaps = [gap for one in streams for gap in one.gaps_ms(t_begin, t_end)]
        if not gaps:
            raise BenchError("the streams wrote nothing meanwhile: use a smaller model or more --mib")
        numbers = f"{statistics.median(gaps):.1f} | {max(gaps):.1f}"
        return f"| {self.program.name} | {self.flags.streams} | {middle} | {numbers} |"


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    if flags.conversations <= flags.free:
        raise BenchError("--conversations must be more than --free, so that they are saved")
    tools = Programs(flags.server, None, {LLAMAD: ["--metrics"]})
    n_slots = flags.streams + flags.free
    n_slot = flags.tokens + 2048 + 100 * QUESTION_TOKENS
    more = ["--kv-unified"] if flags.unified else []
    options = Options(
        str(flags.model),
        n_slots,
        n_slots * n_slot,
        flags.threads,
        n_slots,
        (*flags.args, *more),
        is_tuned=False,
    )
    print(COLUMNS)
    print("| --- " + "| --: " * 6 + "|", flush=True)
    n_turns = 0
    with tempfile.TemporaryDirectory(prefix="llamad-gaps-") as folder:
        for name in programs.chosen(flags):
            if tools.path(name):
                program = tools.start(name, options, Path(folder))
                try:
                    program.wait_ready()
                    n_turns, rows = Run(program, flags).measure(n_turns)
                finally:
                    program.stop()
                print("\n".join(rows), flush=True)
    return 0
