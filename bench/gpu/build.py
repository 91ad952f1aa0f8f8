"""Builds llamad, llama-server and llama-batched-bench from one build of llama.cpp, without a network.

It only needs the standard library, because it makes the environment in which the rest runs. Finished steps are not
repeated, and an interrupted build continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench.deadline import MINUTES, RUN_AGAIN, Deadline
from bench.errors import BenchError

CHECKOUT = Path(__file__).parents[2]
BUILD = str(CHECKOUT / "ext" / "build")
RECIPE = str(CHECKOUT / "vendor" / "llama.cpp")
PYTHON = str(CHECKOUT / ".venv" / "bin" / "python")
MADE = CHECKOUT / "build" / "bench-programs.json"
CUDA = "-DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES={}"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--from",
        dest="carried",
        type=Path,
        metavar="DIR",
        help="the folder with llama.cpp.tar.xz and wheels/",
    )
    add("--cuda", default="90", metavar="ARCH", help="the architecture to compile for (90)")
    add("--cpu", action="store_true", help="without CUDA")
    add(
        "--minutes",
        type=float,
        default=MINUTES,
        help=f"stop after this many, with status {RUN_AGAIN} ({MINUTES})",
    )


def environment(flags: argparse.Namespace) -> dict[str, str]:
    """Return the environment of the build. The folder of --from has sources and wheels; variables that are already set
    have precedence."""
    env = dict(os.environ)
    if flags.carried is not None:
        folder = flags.carried.resolve()
        for name, path in (("LLAMAD_LLAMA_CPP", "llama.cpp.tar.xz"), ("LLAMAD_WHEELS", "wheels")):
            if not (folder / path).exists():
                raise BenchError(f"{folder} has no {path}: bench/README.md says how to fill that folder")
            env.setdefault(name, str(folder / path))
    if not flags.cpu:
        env.setdefault("LLAMAD_CMAKE_ARGS", CUDA.format(flags.cuda))
    return env


def main(flags: argparse.Namespace) -> int:
    deadline = Deadline(flags.minutes)
    env = environment(flags)
    deadline.run([sys.executable, BUILD, "venv"], env, "the Python environment")
    deadline.run([PYTHON, RECIPE, "both"], env, "llama.cpp")
    n_jobs = str(len(os.sched_getaffinity(0)))
    modules = [PYTHON, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel", n_jobs]
    env["LLAMAD_NATIVE"] = "1"  # as make sets it
    deadline.run(modules, env, "the compiled modules")
    deadline.run(["make", "-C", str(CHECKOUT), "build"], env, "make build")
    _add_gguf(deadline, env)
    output = subprocess.run([PYTHON, RECIPE, "both"], env=env, capture_output=True, text=True, check=True)
    server = Path(output.stdout.strip())
    made = {"server": str(server), "batched_bench": str(server.with_name("llama-batched-bench"))}
    MADE.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    print(f"built: {server.parent} and {CHECKOUT / '.venv' / 'bin' / 'llamad'}")
    return 0


def _add_gguf(deadline: Deadline, env: dict[str, str]) -> None:
    """Install gguf, which `python -m bench model` needs; llamad itself does not."""
    if subprocess.run([PYTHON, "-c", "import gguf"], capture_output=True, check=False).returncode == 0:
        return
    wheels = env.get("LLAMAD_WHEELS")
    where = ["--no-index", "--find-links", wheels] if wheels else []
    command = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *where, "gguf>=0.17"]
    deadline.run(command, env, "installing gguf")


def made() -> dict[str, str]:
    """Return the paths of the programs of the last build, by name."""
    try:
        paths: dict[str, str] = json.loads(MADE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return paths
