"""Measures how many prompt tokens are computed for a session of a real coding agent, compared with those that are new.

The programs that are in PATH work on a small project with a scripted model: some 25 turns with tools, sub-agents and
titles where they have them. Their requests are recorded for this run, and then replayed against llamad and
llama-server, with one slot and with --slots.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import programs
from bench.errors import BenchError
from bench.programs import LLAMAD, Options, Program, Programs
from bench.sessions import recording
from bench.sessions.replay import Replayed, Turn, new_tokens
from bench.sessions.scripted_model import Recorded

TEMPLATE = Path(__file__).with_name("template.jinja")
HEAD = "| client | requests | prompt tokens | new | slots | program | computed | computed / new |"
RULE = "| --- | --: | --: | --: | --: | --- | --: | --: |"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only sessions have."""
    add = parser.add_argument
    add(
        "--sessions",
        metavar="CLIENTS",
        help=f"sessions of real programs: all, or {','.join(recording.ARGUMENTS)}",
    )
    add("--ctx", type=int, default=65536, help="sessions: context of a slot in tokens (65536)")
    add("--template", default=str(TEMPLATE), help="sessions: file of the chat template (ChatML with tools)")
    add("--show-turns", action="store_true", help="sessions: every request that computed more than was new")


def _clients(flags: argparse.Namespace) -> list[str]:
    names = recording.installed() if flags.sessions == "all" else flags.sessions.split(",")
    unknown = [one for one in names if one not in recording.ARGUMENTS]
    if unknown:
        raise BenchError(f"unknown client {unknown[0]}: known are {', '.join(recording.ARGUMENTS)}")
    if not names:
        raise BenchError(f"none of {', '.join(recording.ARGUMENTS)} is in PATH")
    return names


def _started(
    flags: argparse.Namespace, tools: Programs, name: str, n_slots: int, folder: Path
) -> Iterator[Program]:
    """Yield a program that is ready, and stop it afterwards."""
    extra = ("--jinja", "--chat-template-file", flags.template, "--slots", *flags.args)
    options = Options(
        flags.model, n_slots, n_slots * flags.ctx, flags.threads, n_slots, extra, is_tuned=False
    )
    program = tools.start(name, options, folder)
    try:
        program.wait_ready()
        yield program
    finally:
        program.stop()


def _replay(program: Program, session: Sequence[Recorded]) -> list[Turn]:
    replayed = Replayed(program.address)
    try:
        return [replayed.turn(one) for one in session]
    finally:
        replayed.close()


def _line(client: str, n_slots: int, name: str, new: Sequence[int], turns: Sequence[Turn]) -> str:
    refused = [one for one in turns if one.n_computed < 0]
    if refused:
        return f"| {client} | {len(turns)} | | | {n_slots} | {name} | refused {len(refused)}: {refused[0].reason} | |"
    n_prompt, n_new, n_computed = (
        sum(one.n_prompt for one in turns),
        sum(new),
        sum(one.n_computed for one in turns),
    )
    return (
        f"| {client} | {len(turns)} | {n_prompt:,} | {n_new:,} | {n_slots} | {name} | {n_computed:,}"
        f" | {n_computed / n_new:.3f} |"
    )


def main(flags: argparse.Namespace) -> int:
    tools = Programs(flags.server)
    names = [one for one in programs.chosen(flags) if tools.path(one)]
    print(f"{HEAD}\n{RULE}", flush=True)
    with tempfile.TemporaryDirectory(prefix="llamad-sessions-") as root:
        folder = Path(root)
        for client in _clients(flags):
            session = recording.record(client).requests
            for program in _started(flags, tools, LLAMAD, 1, folder):
                replayed = Replayed(program.address)
                new = new_tokens(replayed, session)
                replayed.close()
            for n_slots in sorted({1, flags.slots}):
                for name in names:
                    for program in _started(flags, tools, name, n_slots, folder):
                        turns = _replay(program, session)
                    print(_line(client, n_slots, name, new, turns), flush=True)
                    if flags.show_turns:
                        _print_turns(new, turns)
    return 0


def _print_turns(new: Sequence[int], turns: Sequence[Turn]) -> None:
    for i, (n_new, turn) in enumerate(zip(new, turns, strict=True)):
        if turn.n_computed > n_new:
            print(
                f"  request {i}: {turn.n_prompt} tokens, {n_new} new, {turn.n_computed} computed", flush=True
            )
