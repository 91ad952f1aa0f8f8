"""Compares the memory that is estimated before a load with what it allocates, for each model and each set of flags.

Every row is a separate process that plans, loads, and asks llama.cpp again. The last column is how much its resident
memory has grown, with weights that are read instead of mapped, and before it has computed. With a GPU, it is how much
less memory is free on the devices, and the column before it is the part of the estimate that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from typing import Any

from bench.errors import BenchError

MIB = 1 << 20
KINDS = ("weights", "cache", "compute")
FLAGS = ("", "-ctk q8_0 -ctv q8_0 -fa on", "-np 4 -c 8192", "-ub 128")


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("models", nargs="+", help="GGUF files")
    add(
        "--flags",
        action="append",
        help='a set of flags, quoted; may be repeated (default: "" and three more)',
    )
    add("--one", action="store_true", help=argparse.SUPPRESS)  # in the child


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _measured(arguments: list[str]) -> dict[str, Any]:
    """Plan and load in the child process; return the figures."""
    import msgspec

    from llamad._llama import ffi, lib
    from llamad.engine.fit.measure import loaded_usage
    from llamad.engine.fit.plan import Planner
    from llamad.engine.loading.model import load
    from llamad.engine.loading.opening import Loading, vet
    from llamad.flags.sources import Sources

    lib.llamad_log_open(-1)
    settings = Sources(arguments, {}).read().settings.model
    vet(settings, Loading())
    plan = Planner(settings, 1, always=True).plan()
    assert plan.usage is not None
    resident = _resident()
    loaded = load(plan.settings, 1, Loading())
    allocated = loaded_usage(loaded.contexts)
    devices = []
    for device in plan.devices:
        free, total = ffi.new("size_t *"), ffi.new("size_t *")
        lib.ggml_backend_dev_memory(lib.ggml_backend_dev_by_name(device.name.encode()), free, total)
        devices.append(device.free - free[0])
    return {
        "n_ctx": loaded.n_ctx,
        "estimate": msgspec.to_builtins(plan.usage.total),
        "allocated": msgspec.to_builtins(allocated.total),
        "on_devices": sum(use.total for use in plan.usage.devices.values()),
        "measured": sum(devices) if devices else _resident() - resident,
    }


def row(model: str, words: str) -> str:
    command = [sys.executable, "-m", "bench", "estimates", "--one", f"--flags={words}", "--", model]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"{model} {words}: {done.stderr.strip()[-400:]}")
    figures = json.loads(done.stdout.splitlines()[-1])
    estimate, allocated = figures["estimate"], figures["allocated"]
    kinds = [f"{estimate[kind] / MIB:.1f} / {allocated[kind] / MIB:.1f}" for kind in KINDS]
    beside = estimate["projector"] + estimate["adapters"]
    name = os.path.basename(model).removesuffix(".gguf")
    cells = [*kinds, *(f"{n / MIB:.1f}" for n in (beside, figures["on_devices"], figures["measured"]))]
    return f"| {name} {words} | {figures['n_ctx']} | " + " | ".join(cells) + " |"


def main(flags: argparse.Namespace) -> int:
    if flags.one:
        own = shlex.split(flags.flags[0])
        print(json.dumps(_measured(["-m", flags.models[0], "-t", "1", "--no-mmap", *own])))
        return 0
    print(
        "| model, flags | context | weights | cache | compute | projector, adapters | on devices | measured |"
    )
    print("| --- |" + " --: |" * 7, flush=True)
    for model in flags.models:
        for words in flags.flags or FLAGS:
            print(row(model, words), flush=True)
    return 0
