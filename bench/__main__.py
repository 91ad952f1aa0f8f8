"""`python -m bench`: reads the flags, starts the programs, runs the scenarios, prints and writes the results."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import ending, memory, prompts, report, scenarios, startup
from bench.errors import BenchError
from bench.programs import Options, Pair
from bench.scenarios import Same, Section, Work

CONTEXT_STEP = 256
START_CONTEXT = 512  # tokens a slot, for start-up and memory
PARTS = ("generate", "requests", "startup", "memory")
IDLE_SECONDS = 2.0
# What --quick changes, where the flag itself was not given: it shows that everything works, in seconds.
QUICK = {
    **{"streams": [2], "prompt_tokens": 16, "predict": 8, "requests": 1, "rounds": 1, "seconds": 0.3},
    **{"slots": [2], "idle_connections": 50},
}
QUICK_CHECK = [16]
DEFAULTS = {
    "streams": [1, 4, 8],
    "prompt_tokens": 64,
    "predict": 64,
    "requests": 4,
    "rounds": 3,
    "seconds": 2.0,
    "slots": [1, 64],
    "idle_connections": 10_000,
}
DEFAULT_CHECK = [16, 64, 300, 600]


def numbers(text: str) -> list[int]:
    """ "1,4,8" as a list; each at least 1."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures llamad and, where its program is named, llama-server in turns: the same model, "
        "prompts and options. bench/README.md says how to read the result.",
    )
    add = flags.add_argument
    add("--model", default=os.environ.get("LLAMAD_TEST_MODEL"), help="the GGUF file (LLAMAD_TEST_MODEL)")
    add("--server", default=os.environ.get("LLAMA_SERVER"), help="llama-server's program (LLAMA_SERVER)")
    add("--only", choices=PARTS, help="one part alone")
    add("--streams", type=numbers, help="how many at once, a list (1,4,8)")
    add("--prompt-tokens", type=int, help="about how long a prompt is (64)")
    add("--predict", type=int, help="tokens to predict, a quarter more or less (64)")
    add("--requests", type=int, help="requests of each stream in a round (4)")
    add("--rounds", type=int, help="how often the programs take turns (3)")
    add("--threads", type=int, default=1, help="threads that compute (1)")
    add("--ctx", type=int, help="tokens of context for each slot (as many as are needed)")
    add("--slots", type=numbers, help="of the programs whose start and memory are measured, a list (1,64)")
    add("--idle-connections", type=int, help="that the memory is measured with (10000)")
    add("--connections", type=int, default=16, help="for the small requests (16)")
    add("--seconds", type=float, help="how long small requests are sent in a round (2)")
    add(
        "--check",
        type=numbers,
        help="prompt lengths for the check that both write the same text (16,64,300,600)",
    )
    add("--no-check", action="store_true", help="leave that check out")
    add("--seed", type=int, default=1, help="of the prompts and of the sampling (1)")
    add("--temperature", type=float, help="sent with each request; without it the programs' default")
    add("--top-k", type=int, help="likewise")
    add("--timeout", type=float, default=600.0, help="seconds for one run (600)")
    add("--json", type=Path, help="write everything to this file too")
    add("--quick", action="store_true", help="a few seconds: shows that it works, measures nothing")
    return flags


def read_flags(arguments: Sequence[str]) -> argparse.Namespace:
    flags = parser().parse_args(arguments)
    for name, value in (QUICK if flags.quick else DEFAULTS).items():
        if getattr(flags, name) is None:
            setattr(flags, name, value)
    if flags.check is None:
        flags.check = [] if flags.no_check else QUICK_CHECK if flags.quick else DEFAULT_CHECK
    if not flags.model:
        raise BenchError("no model: pass --model FILE.gguf, or run `make bench`, which fetches one")
    if not Path(flags.model).is_file():
        raise BenchError(f"{flags.model} is not a file: pass --model FILE.gguf")
    flags.server = flags.server or None
    for name in (
        "prompt_tokens",
        "predict",
        "requests",
        "rounds",
        "threads",
        "connections",
        "idle_connections",
    ):
        if getattr(flags, name) < 1:
            raise BenchError(f"--{name.replace('_', '-')} must be at least 1")
    return flags


def context_of(flags: argparse.Namespace, work: Work) -> int:
    """Room for the longest request; words that are more than one token are allowed for."""
    if flags.ctx is not None:
        return int(flags.ctx)
    longest: int = max([work.n_prompt, *(flags.check if flags.server else [])])
    wanted = longest + longest // 4 + 16 + work.n_predict_most
    return math.ceil(wanted / CONTEXT_STEP) * CONTEXT_STEP


def setup_of(flags: argparse.Namespace, n_ctx: int) -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
        "model": Path(flags.model).name,
        "n_threads": flags.threads,
        "n_ctx_slot": n_ctx,
        "flags": {name: str(v) if isinstance(v, Path) else v for name, v in vars(flags).items()},
    }


def run(flags: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Section], list[Same]]:
    work = Work(
        n_prompt=flags.prompt_tokens,
        n_predict=flags.predict,
        n_requests=flags.requests,
        n_rounds=flags.rounds,
        n_connections=flags.connections,
        seconds=flags.seconds,
        seed=flags.seed,
        timeout_s=flags.timeout,
        sampling={
            name: value
            for name, value in (("temperature", flags.temperature), ("top_k", flags.top_k))
            if value is not None
        },
    )
    n_ctx = context_of(flags, work)
    setup = setup_of(flags, n_ctx)
    print(
        f"{setup['model']}, {flags.threads} compute thread(s), {n_ctx} tokens a slot, {setup['machine']}\n",
        flush=True,
    )
    sections: list[Section] = []
    found: list[Same] = []

    def pair(n_slots: int) -> Pair:
        options = Options(
            flags.model, n_slots, n_ctx * n_slots, flags.threads, max(n_slots, flags.connections)
        )
        return Pair(options, flags.server, folder)

    def show(part: str) -> None:
        print(part + "\n", flush=True)

    # Each number of streams meets programs with just so many slots, so that none has to leave slots empty.
    for i, n_streams in enumerate(flags.streams if flags.only in (None, "generate") else []):
        with pair(n_streams) as both:
            show(report.idle(n_streams, both.idle_cpu(IDLE_SECONDS)))
            if i == 0 and flags.check and flags.server:
                found = scenarios.same_text(both, work, flags.check)
                show(report.same(found))
            sections.append(scenarios.generate(both, work, n_streams))
            show(report.table(sections[-1]))
    if flags.only in (None, "requests"):
        with pair(1) as both:
            texts = prompts.texts(prompts.N_TEXTS, work.n_prompt, work.seed, coined=prompts.COINED)
            for what in (("GET", "/health"), ("POST", "/tokenize", [{"content": text} for text in texts])):
                sections.append(scenarios.small_requests(both, work, *what))
                show(report.table(sections[-1]))
    for n_slots in flags.slots:
        n_ctx_all = (flags.ctx or START_CONTEXT) * n_slots
        options = Options(flags.model, n_slots, n_ctx_all, flags.threads, flags.connections)
        if flags.only in (None, "startup"):
            sections.append(startup.startup(options, flags.server, work, folder))
            show(report.table(sections[-1]))
        if flags.only in (None, "memory"):
            sections.append(memory.memory(options, flags.server, work, flags.idle_connections, folder))
            show(report.table(sections[-1]))
    if flags.server is None:
        show(report.ALONE)
    return setup, sections, found


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status tells whether it could be measured, not what came out."""
    try:
        flags = read_flags(sys.argv[1:] if arguments is None else arguments)
        with tempfile.TemporaryDirectory(prefix="llamad-bench-") as folder:
            setup, sections, found = run(flags, Path(folder))
        if flags.json is not None:
            text = json.dumps(report.as_json(setup, sections, found), indent=2, allow_nan=False) + "\n"
            flags.json.write_text(text, encoding="utf-8")
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"bench: {error.filename or 'system'}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    ending.with_children()
    sys.exit(main())
