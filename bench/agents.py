"""Measures how much is computed again when more agents than slots take turns, each with a long conversation; with
--sessions, when a real coding agent works (bench/sessions).

Every agent is a client that sends its whole conversation again, with some new tokens, as soon as it is answered. What a
server computes beyond the new tokens, it has computed before.
"""

from __future__ import annotations

import argparse
import random
import shlex
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bench import programs
from bench.client import Client, clock
from bench.programs import Options, Program, Programs
from bench.sessions import command as sessions


@dataclass(slots=True)
class Counts:
    """The prompt tokens of an agent's turns; the first turn is not counted."""

    n_prompt: int = 0
    n_new: int = 0
    n_computed: int = 0
    turns_ms: list[float] = field(default_factory=list)


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--agents", type=int, default=12, help="agents (12)")
    add("--tokens", type=int, default=16000, help="tokens of each conversation when it begins (16000)")
    add("--turns", type=int, default=30, help="turns of each agent after the first (30)")
    add("--question", type=int, default=120, help="new tokens of a turn (120)")
    add("--predict", type=int, default=32, help="tokens of an answer (32)")
    add("--slots", type=int, default=4, help="-np (4)")
    add("--threads", type=int, help="-t (the program's own choice)")
    add("--ids", type=int, default=32000, help="prompts have token ids below this (32000)")
    add("--args", type=shlex.split, default=["-ngl", "99"], help="flags for all programs (-ngl 99)")
    programs.add_choice(parser)
    add("--seed", type=int, default=1)
    sessions.add_flags(parser)


def _run_agent(program: Program, flags: argparse.Namespace, number: int) -> Counts:
    draw = random.Random(f"{flags.seed} {number}")
    client = Client(program.address)
    counts = Counts()
    conversation: list[int] = []
    for turn in range(1 + flags.turns):
        n_new = flags.question if turn else flags.tokens
        conversation += [draw.randrange(100, flags.ids) for _ in range(n_new)]
        body = {
            "prompt": conversation,
            "n_predict": flags.predict,
            "ignore_eos": True,
            "temperature": 0.0,
            "cache_prompt": True,
            "return_tokens": True,
        }
        t_begin = clock()
        reply = client.ask("/completion", body)
        if turn:
            counts.n_prompt += len(conversation)
            counts.n_new += n_new + 1  # the last token of an answer is not in the cache yet
            counts.n_computed += reply["timings"]["prompt_n"]
            counts.turns_ms.append((clock() - t_begin) / 1e6)
        conversation += reply["tokens"]
    client.close()
    return counts


def _measure(program: Program, flags: argparse.Namespace) -> str:
    t_begin = clock()
    with ThreadPoolExecutor(flags.agents) as pool:
        all_counts = list(pool.map(lambda number: _run_agent(program, flags, number), range(flags.agents)))
    seconds = (clock() - t_begin) / 1e9
    n_prompt, n_new, n_computed = (
        sum(getattr(counts, name) for counts in all_counts) for name in ("n_prompt", "n_new", "n_computed")
    )
    again = max(0, n_computed - n_new)
    turn_ms = statistics.median(ms for counts in all_counts for ms in counts.turns_ms)
    return f"| {program.name} | {n_prompt:,} | {again:,} | {again / n_prompt:.2%} | {turn_ms:,.0f} | {seconds:,.0f} |"


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    if flags.sessions:
        return sessions.main(flags)
    tools = Programs(flags.server)
    n_slot = flags.tokens + (flags.turns + 1) * (flags.question + flags.predict) + 64
    options = Options(
        flags.model,
        flags.slots,
        flags.slots * n_slot,
        flags.threads,
        flags.agents,
        tuple(flags.args),
        is_tuned=False,
    )
    print("| program | prompt tokens | computed again | share | a turn, ms | seconds |")
    print("| --- | --: | --: | --: | --: | --: |", flush=True)
    with tempfile.TemporaryDirectory(prefix="llamad-agents-") as folder:
        for name in programs.chosen(flags):
            if tools.path(name):
                program = tools.start(name, options, Path(folder))
                try:
                    program.wait_ready()
                    print(_measure(program, flags), flush=True)
                finally:
                    program.stop()
    return 0
