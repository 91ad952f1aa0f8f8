"""Checks whether llamad and llama-server generate the same text.

It sends one request at a time to an idle server, without caches: greedy, then seeded with the default samplers, for
several lengths of prompts. It shows the first difference, and exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import programs
from bench.flags import numbers
from bench.programs import LLAMA_SERVER, LLAMAD, Options, Programs
from bench.prompts import KINDS, Prompts


@dataclass(frozen=True, slots=True)
class Same:
    """Whether a prompt gave the same text."""

    title: str
    is_same: bool
    detail: str

    def line(self) -> str:
        return f"{self.title}: {'yes' if self.is_same else 'NO'}, {self.detail}"


def first_difference(ours: str, theirs: str) -> int:
    """Return the index of the first character that differs, or the length of equal texts."""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    return min(len(ours), len(theirs)) if at is None else at


def compare(title: str, ours: str, theirs: str) -> Same:
    if ours == theirs:
        return Same(title, True, f"{len(ours)} characters")
    at = first_difference(ours, theirs)
    cut = slice(max(0, at - 20), at + 20)
    return Same(title, False, f"from character {at} on: llamad {ours[cut]!r}, llama-server {theirs[cut]!r}")


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    add = parser.add_argument
    add("--lengths", type=numbers, default=[16, 64, 300, 600], help="tokens of the prompts (16,64,300,600)")
    add("--predict", type=int, default=64, help="tokens to compare (64)")
    add("--texts", choices=KINDS, default=KINDS[0], help="the source of the prompts")
    add("--threads", type=int, default=1, help="compute threads (1)")
    add("--seed", type=int, default=1, help="seed of the prompts and of the sampling (1)")


def main(flags: argparse.Namespace) -> int:
    programs.check_model(flags)
    there, prompts, running = Programs(flags.server), Prompts(flags.texts, flags.seed), []
    options = Options(flags.model, 1, max(flags.lengths) + flags.predict + 16, flags.threads, 1)
    samplings: dict[str, dict[str, Any]] = {
        "temperature 0": {"temperature": 0.0},
        f"seed {flags.seed}, default samplers": {"seed": flags.seed},
    }
    results = []
    with tempfile.TemporaryDirectory(prefix="llamad-same-") as folder:
        try:
            for name in (LLAMAD, LLAMA_SERVER):
                running.append(there.start(name, options, Path(folder)))
            for program in running:
                program.wait_ready()
            prompts.learn(running[0].client)
            for name, sampling in samplings.items():
                for index, n_prompt in enumerate(flags.lengths):
                    body = {"prompt": prompts.prompt(index, n_prompt), "n_predict": flags.predict}
                    body |= {"stream": False, "cache_prompt": False, "ignore_eos": True, **sampling}
                    ours, theirs = (one.client.ask("/completion", body)["content"] for one in running)
                    results.append(compare(f"{name}, prompt of {n_prompt}", ours, theirs))
                    print(results[-1].line(), flush=True)
        finally:
            for program in running:
                program.stop()
    return 0 if all(one.is_same for one in results) else 1
