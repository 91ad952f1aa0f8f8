"""`bench/gpu build|model|run`: reads the flags. Exit status 75: the time was up, run the same command again."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import ending, prompts
from bench.device import build
from bench.device.deadline import RUN_AGAIN, OutOfTimeError
from bench.errors import BenchError

CHECKOUT = Path(__file__).parents[2]
MINUTES = 8.5


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def id_range(text: str) -> range:
    """ "300,512": the ids from 300 up to 511."""
    first, end = numbers(text)
    if not 0 <= first < end:
        raise ValueError(text)
    return range(first, end)


def options(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="bench/gpu", description=__doc__)
    commands = flags.add_subparsers(dest="command", required=True)
    _build(commands.add_parser("build", help="llamad, llama-server and llama-batched-bench"))
    _model(commands.add_parser("model", help="a GGUF with random weights"))
    _run(commands.add_parser("run", help="measure"))
    return flags


def _build(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add("--from", dest="carried", type=Path, metavar="DIR", help="holds llama.cpp.tar.xz and wheels/")
    add("--cuda", default="90", metavar="ARCH", help="the architecture to compile for (90)")
    add("--cpu", action="store_true", help="without CUDA")
    add(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"stop after so many, with status {RUN_AGAIN} ({MINUTES})",
    )


def _model(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add("--vocab", type=Path, help="a GGUF whose vocabulary to take (512 tokens of bytes, letters and pairs)")
    add("--out", type=Path, required=True, help="the file to write")
    add(
        "--shape",
        default="1b",
        help="tiny, 260k, 135m, 1b, 8b, or WIDTH,LAYERS,HEADS,KV_HEADS,FEED_FORWARD (1b)",
    )
    add("--type", choices=["f32", "f16", "q8_0"], default="f16")
    add("--n-vocab", type=int, help="fill the vocabulary up to so many tokens")
    add("--logit-deviation", type=float, default=1.0, help="how far the logits lie apart (1)")
    add("--seed", type=int, default=1)
    add("--again", action="store_true", help="write it even if it is there")


def _run(flags: argparse.ArgumentParser) -> None:
    from bench.device.table import COLUMNS, PROGRAMS
    from bench.device.work import DEFAULTS

    add = flags.add_argument
    add("--model", type=Path, required=True, help="the GGUF file")
    add("--scenario", choices=list(DEFAULTS), default="streams")
    add("--streams", type=numbers, help="how many at once, a list (streams: 1,8,32,64)")
    add("--prompt-tokens", type=int, help="of each prompt, none of them cached (streams: 64)")
    add(
        "--shorter",
        type=float,
        default=0.0,
        help="prompts are shorter by up to this part, each by its own (0)",
    )
    add("--predict", type=int, help="tokens of each stream (streams: 128)")
    add("--rounds", type=int, default=3)
    add("--options", type=options, default={}, help="JSON added to each request: '{\"top_k\": 0}'")
    add("--path", default="/completion", choices=["/completion", "/v1/completions", "/v1/chat/completions"])
    add("--np", type=int, help="slots (as many as streams)")
    add("--ctx", type=int, help="tokens of context for each slot (as many as are needed)")
    add("--ngl", type=int, default=99, help="layers on the device (99)")
    add("--threads", type=int, help="-t of all programs (their own choice)")
    add(
        "--ids",
        type=id_range,
        default=prompts.IDS,
        metavar="FIRST,END",
        help="token ids that prompts are made of (1000,30000)",
    )
    add("--turns", action="store_true", help="both servers stay loaded and take turns, a round each")
    add("--long-prompt", type=int, default=4000, help="gap: tokens of the prompts that arrive (4000)")
    add("--arriving", type=int, default=2, help="gap: how many of them at once (2)")
    add("--prefix", type=int, default=2000, help="prefix: tokens that all prompts begin with (2000)")
    add("--connections", type=int, default=16, help="requests: connections (16)")
    add("--load-threads", type=int, default=1, help="requests: threads that send them (1)")
    add("--rate", type=float, default=0.0, help="requests: so many a second (each after the last's answer)")
    add(
        "--coined",
        type=float,
        default=prompts.COINED,
        help="requests: part of the words that are made up (0.1)",
    )
    add("--seconds", type=float, default=3.0, help="requests: how long in each round (3)")
    add("--programs", type=lambda text: text.split(","), help="of " + ", ".join(PROGRAMS))
    add("--args", type=shlex.split, default=[], help="flags for all programs")
    add("--llamad-args", type=shlex.split, default=[], help="flags for llamad")
    add("--server-args", type=shlex.split, default=[], help="flags for llama-server")
    add("--server", help="llama-server's program (the one that was built)")
    add("--batched-bench", help="llama-batched-bench's program (the one that was built)")
    add(
        "--measure",
        choices=sorted({key for keys in COLUMNS.values() for key in keys}),
        help="of the first table",
    )
    add("--label", default="", help="kept with the results, to tell two states of llamad apart")
    add(
        "--results",
        type=Path,
        default=CHECKOUT / "build" / "gpu-results.jsonl",
        help="the file to go on with",
    )
    add("--again", nargs="?", const="all", help="measure anew: all, or the programs named")
    add("--seed", type=int, default=1)
    add("--timeout", type=float, default=180.0, help="seconds for one load (180)")
    add(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"stop after so many, with status {RUN_AGAIN} ({MINUTES})",
    )


def check_run(flags: argparse.Namespace) -> None:
    from bench.device.table import PROGRAMS
    from bench.device.work import DEFAULTS

    for name, value in DEFAULTS[flags.scenario].items():
        if getattr(flags, name) is None:
            setattr(flags, name, value)
    if not flags.model.is_file():
        raise BenchError(f"{flags.model} is not a file: `bench/gpu model` writes one")
    least = 0 if flags.scenario == "requests" else 1
    if min(flags.streams) < least:
        raise BenchError(f"--streams must be at least {least}")
    for name in ("prompt_tokens", "predict", "rounds"):
        if getattr(flags, name) < 1:
            raise BenchError(f"--{name.replace('_', '-')} must be at least 1")
    for name in flags.programs or []:
        if name not in PROGRAMS:
            raise BenchError(f"--programs: there is no {name}; it takes {', '.join(PROGRAMS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    flags = parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        if flags.command == "build":
            build.build(flags)
        elif flags.command == "model":
            from bench.device import model

            model.model(flags)
        else:
            from bench.device import run

            check_run(flags)
            run.run(flags)
    except OutOfTimeError:
        print(
            f"bench: {flags.minutes:g} minutes are over: run the same command again to go on", file=sys.stderr
        )
        return RUN_AGAIN
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
