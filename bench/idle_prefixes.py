"""Measures how fast a stream is beside idle conversations, and how soon a returning one gets its first token.

Programs are started without -np, so that their slots share one cache. In a round the stream first runs alone. Then
other conversations are prefilled one after another, and it runs again beside them. Then the first of them continues.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import programs
from bench.client import Client, clock
from bench.errors import BenchError
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Program, Programs

QUESTION_TOKENS = 32
COLUMNS = ("alone", "beside", "beside/alone", "first token", "of one that stays", "of one that returns")


class DefaultSlots(Options):
    """Options without -np: the program's own number of slots, over one cache."""

    def flags(self, port: int) -> list[str]:
        words = super().flags(port)
        at = words.index("-np")
        return words[:at] + words[at + 2 :]


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--conversations", type=int, default=3, help="idle conversations (3)")
    add("--tokens", type=int, default=8000, help="tokens of each (8000)")
    add("--predict", type=int, default=512, help="tokens of the stream (512)")
    add("--rounds", type=int, default=5, help="rounds of each program (5)")
    add("--ctx", type=int, default=65536, help="-c (65536)")
    add("--pause", type=float, default=0.0, help="seconds before the stream begins beside them (0)")
    add("--slots", type=int, default=0, help="-np of all programs (their default)")
    add(
        "--args",
        type=shlex.split,
        default=["-ngl", "99", "-fa", "on"],
        help="flags for all programs (-ngl 99 -fa on)",
    )
    add("--ids", type=int, default=32000, help="prompts have token ids below this (32000)")


class Round:
    """One round of one program. Its prompts have ids that no earlier round had."""

    def __init__(self, flags: argparse.Namespace, program: Program, index: int) -> None:
        self.flags = flags
        self.program = program
        self._next = 1000 + 7919 * index

    def ids(self, n: int) -> list[int]:
        out = []
        for _ in range(n):
            self._next = (self._next * 48271 + 11) % 2147483647
            out.append(100 + self._next % (self.flags.ids - 100))
        return out

    def ask(self, prompt: list[int], n_predict: int) -> dict[str, Any]:
        body = {
            "prompt": prompt,
            "n_predict": n_predict,
            "ignore_eos": True,
            "temperature": 0.0,
            "cache_prompt": True,
        }
        reply: dict[str, Any] = self.program.client.ask("/completion", body)
        return reply

    def first_ms(self, prompt: list[int]) -> float:
        body = {"prompt": prompt, "n_predict": 4, "ignore_eos": True, "stream": True, "cache_prompt": True}
        t_start = clock()
        return (Client(self.program.address).first_token(body) - t_start) / 1e6

    def stream(self) -> tuple[float, float]:
        """Return tokens/s of the stream, and the time to its first token in ms."""
        timings = self.ask(self.ids(QUESTION_TOKENS), self.flags.predict)["timings"]
        return timings["predicted_per_second"], timings["prompt_ms"]

    def measure(self) -> list[float]:
        self.stream()
        alone, _ = self.stream()
        conversations = [self.ids(self.flags.tokens) for _ in range(self.flags.conversations)]
        for one in conversations:
            self.ask(one, 1)
        stays = self.first_ms(conversations[-1] + self.ids(QUESTION_TOKENS))
        time.sleep(self.flags.pause)
        beside, first = self.stream()
        returns = self.first_ms(conversations[0] + self.ids(QUESTION_TOKENS))
        for slot in range(self.flags.conversations + 1):  # the next round begins with empty slots
            self.ask(self.ids(QUESTION_TOKENS + slot), 1)
        return [alone, beside, beside / alone, first, stays, returns]


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    if flags.conversations * (flags.tokens + 600) > flags.ctx:
        raise BenchError("--ctx is too small for all conversations at once")
    there = Programs(flags.server, None)
    names = [name for name in (LLAMA_SERVER, LLAMAD) if there.path(name)]
    kind = Options if flags.slots else DefaultSlots
    options = kind(str(flags.model), flags.slots or 4, flags.ctx, None, 4, tuple(flags.args), is_tuned=False)
    print(f"{'':14}" + "".join(f"{name:>20}" for name in COLUMNS))
    with tempfile.TemporaryDirectory(prefix="llamad-idle-") as folder:
        for name in names:
            program = there.start(name, options, Path(folder))
            try:
                program.wait_ready()
                rows = [Round(flags, program, index).measure() for index in range(flags.rounds)]
            finally:
                program.stop()
            medians = [statistics.median(column) for column in zip(*rows, strict=True)]
            print(f"{name:14}" + "".join(f"{value:20.3f}" for value in medians), flush=True)
    return 0
