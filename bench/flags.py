"""The flags of `python -m bench run` and their defaults, which depend on the scenario and the machine."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from collections import ChainMap
from pathlib import Path
from typing import Any

from bench import programs
from bench.deadline import MINUTES
from bench.errors import BenchError
from bench.programs import NAMES
from bench.prompts import CHAT, COINED, ID_RANGE, IDS, KINDS, MADE_UP
from bench.scenarios import MEASURES

CHECKOUT = Path(__file__).parents[1]

# The defaults of the flags: for any scenario, for one scenario, for a machine without a GPU, and for a --quick run,
# which shows that everything works and measures nothing.
ALL: dict[str, Any] = {
    **{"rounds": 3, "streams": [1, 8, 32, 64], "prompt_tokens": 64, "predict": 64, "seconds": 3.0, "each": 4},
    **{"ngl": 99, "turns": False, "minutes": MINUTES, "long_prompt": 4000, "arriving": 2, "prefix": 2000},
    **{"idle_connections": 10_000, "scenario": ["tokens"]},
}
OF_SCENARIO: dict[str, dict[str, Any]] = {
    "tokens": {"predict": 128},
    "loop": {"streams": [1, 8, 32]},
    "ttft": {"streams": [8, 64], "prompt_tokens": 512, "predict": 32},
    "gap": {"streams": [8, 32], "predict": 512},
    "prefix": {"streams": [64], "prompt_tokens": 32, "predict": 32},
    "requests": {"streams": [0, 32], "predict": 128},
    "idle": {"streams": [1, 64]},
    "startup": {"slots": [1, 64]},
    "memory": {"slots": [1, 64]},
}
CPU: dict[str, Any] = {
    **{"threads": 1, "ngl": 0, "turns": True, "minutes": float("inf"), "seconds": 2.0},
    "scenario": ["idle", "loop", "requests", "startup", "memory"],
}
OF_SCENARIO_CPU: dict[str, dict[str, Any]] = {
    "tokens": {"streams": [1, 4, 8], "predict": 64},
    "loop": {"streams": [1, 4, 8]},
    "ttft": {"streams": [8], "prompt_tokens": 64, "predict": 16},
    "gap": {"streams": [4], "predict": 60, "arriving": 1, "long_prompt": 1500},
    "prefix": {"streams": [8], "prefix": 500},
    "requests": {"streams": [0]},
    "idle": {"streams": [1]},
}
QUICK: dict[str, Any] = {
    **{"rounds": 1, "streams": [2], "prompt_tokens": 16, "predict": 8, "seconds": 0.3, "each": 2},
    **{"long_prompt": 64, "arriving": 1, "prefix": 48, "idle_connections": 50},
}
OF_SCENARIO_QUICK: dict[str, dict[str, Any]] = {
    "requests": {"streams": [0]},
    "startup": {"slots": [2]},
    "memory": {"slots": [2]},
}


def has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia*")) or Path("/dev/kfd").exists() or bool(shutil.which("nvidia-smi"))


def numbers(text: str) -> list[int]:
    """Parse a list such as "1,4,8"."""
    values = [int(word) for word in text.split(",")]
    if min(values) < 0:
        raise ValueError(text)
    return values


def id_range(text: str) -> range:
    """Parse a range such as "300,512": the ids from 300 up to 511."""
    first, end = numbers(text)
    if first >= end:
        raise ValueError(text)
    return range(first, end)


def json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


def names(text: str) -> list[str]:
    return text.split(",")


def add_flags(parser: argparse.ArgumentParser) -> None:
    programs.add_flags(parser)
    _what(parser.add_argument_group("what is measured"))
    _requests(parser.add_argument_group("requests"))
    _how(parser.add_argument_group("programs"))
    _rounds(parser.add_argument_group("rounds and results"))


def _what(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--scenario", type=names, help=f"a list of {', '.join(MEASURES)} (tokens; without a GPU several)")
    add("--streams", type=numbers, help="streams at once, a list; requests: streams beside them, 0 for none")
    add("--slots", "--np", type=numbers, help="slots (as many as streams); startup, memory: a list (1,64)")
    add(
        "--prompt-tokens",
        type=int,
        help="tokens of each prompt, none of them cached (64; ttft 512; prefix 32)",
    )
    add("--shorter", type=float, default=0.0, help="each prompt is shorter by a random share up to this")
    add("--predict", type=int, help="tokens to predict (128; loop 64, a quarter more or less)")
    add("--each", type=int, help="loop: requests of each stream in a round (4)")
    add("--long-prompt", type=int, help="gap: tokens of the prompts that arrive (4000)")
    add("--arriving", type=int, help="gap: how many of these prompts at once (2)")
    add("--prefix", type=int, help="prefix: tokens that all prompts begin with (2000)")
    add("--connections", type=int, default=16, help="requests: connections (16)")
    add("--load-threads", type=int, default=1, help="requests: threads that send them (1)")
    add(
        "--rate",
        type=float,
        default=0.0,
        help="requests: requests per second (default: each after the last response)",
    )
    add("--seconds", type=float, help="requests, idle: length of a round (3)")
    add("--idle-connections", type=int, help="memory: connections (10000)")


def _requests(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--endpoint", default="/completion", choices=["/completion", "/v1/completions", CHAT])
    add("--texts", choices=KINDS, default=None, help="prose, code and chats; random words; random token ids")
    add("--coined", type=float, help="share of words that are in no list (0; made-up texts 0.1)")
    add(
        "--ids",
        type=id_range,
        metavar="FIRST,END",
        help="token ids of --texts ids, which it implies (1000,30000)",
    )
    add(
        "--lora", type=names, default=[], metavar="FILE,...", help="LoRA adapters, for requests that name one"
    )
    add("--lora-sets", type=int, help="how many of the adapters streams use in turn (all)")
    add("--options", type=json_object, default={}, help="JSON added to each request: '{\"top_k\": 0}'")
    add("--seed", type=int, default=1, help="seed of the prompts and of the sampling (1)")


def _how(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--programs", type=names, help=f"a list of {', '.join(NAMES)} (those that are installed)")
    add("--batched-bench", help="llama-batched-bench's program (the one `bench build` made)")
    add(
        "--cpu",
        action=argparse.BooleanOptionalAction,
        default=not has_gpu(),
        help="use the defaults for a machine without a GPU: -ngl 0, one thread, fewer streams, turns",
    )
    add("--ctx", type=int, help="tokens of context for each slot (as many as are needed)")
    add("--ngl", type=int, help="layers on the device (99)")
    add("--threads", type=int, help="-t of all programs (their own choice)")
    add("--args", type=shlex.split, default=[], help="flags for all programs")
    add("--llamad-args", type=shlex.split, default=[], help="flags for llamad")
    add("--server-args", type=shlex.split, default=[], help="flags for llama-server")


def _rounds(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--rounds", type=int, help="rounds of each program (3)")
    add(
        "--turns",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep all programs loaded and alternate their rounds, for machines whose speed drifts",
    )
    add(
        "--measure",
        choices=sorted({key for keys in MEASURES.values() for key in keys}),
        help="the measure of the first table",
    )
    add("--json", type=Path, help="also write everything to this file")
    add("--timeout", type=float, default=600.0, help="seconds for one round (600)")
    add(
        "--minutes",
        type=float,
        help=f"stop after this many, with status 75, and continue next time ({MINUTES})",
    )
    add(
        "--results",
        type=Path,
        default=CHECKOUT / "build" / "bench-results.jsonl",
        help="the file of results, to continue with",
    )
    add("--again", nargs="?", const="all", help="measure again: all, or the named programs")
    add("--label", default="", help="stored with the results, to tell two versions of llamad apart")
    add("--quick", action="store_true", help="a few seconds: shows that it works, measures nothing")


def scenarios_of(flags: argparse.Namespace) -> list[str]:
    chosen: list[str] = flags.scenario or (CPU if flags.cpu else ALL)["scenario"]
    for name in chosen:
        if name not in MEASURES:
            raise BenchError(f"--scenario: there is no {name}; it takes {', '.join(MEASURES)}")
    return chosen


def filled(flags: argparse.Namespace, scenario: str) -> argparse.Namespace:
    """Return the flags for one scenario, with all defaults filled in."""
    quick = [OF_SCENARIO_QUICK.get(scenario, {}), QUICK] if flags.quick else []
    cpu = [OF_SCENARIO_CPU.get(scenario, {}), OF_SCENARIO[scenario], CPU] if flags.cpu else []
    defaults = ChainMap(*quick, *cpu, OF_SCENARIO[scenario], ALL)
    out = argparse.Namespace(**vars(flags))
    for name in vars(flags):
        if getattr(out, name) is None:
            setattr(out, name, defaults.get(name))
    out.scenario = scenario
    out.texts = out.texts or (IDS if flags.ids else KINDS[0])
    out.ids = out.ids or ID_RANGE
    if out.lora_sets is None:
        out.lora_sets = len(out.lora)
    if out.coined is None:
        out.coined = COINED if out.texts == MADE_UP else 0.0
    return out


def check(flags: argparse.Namespace) -> None:
    programs.check_model(flags)
    least = 0 if flags.scenario == "requests" else 1
    if min(flags.streams) < least:
        raise BenchError(f"--streams must be at least {least}")
    if min(flags.slots or [1]) < 1:
        raise BenchError("--slots must be at least 1")
    for name in ("prompt_tokens", "predict", "rounds", "each", "connections", "idle_connections"):
        if getattr(flags, name) < 1:
            raise BenchError(f"--{name.replace('_', '-')} must be at least 1")
    for path in flags.lora:
        if not Path(path).is_file():
            raise BenchError(f"--lora: {path} is not a file (`python -m bench lora` writes some)")
    if not min(1, len(flags.lora)) <= flags.lora_sets <= len(flags.lora):
        raise BenchError(f"--lora-sets must be from 1 to {len(flags.lora)}, the adapters of --lora")
    for name in flags.programs or []:
        if name not in NAMES:
            raise BenchError(f"--programs: there is no {name}; it takes {', '.join(NAMES)}")
