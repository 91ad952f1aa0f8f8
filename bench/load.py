"""The load generator, loadgen/: compiles it when it has changed, runs it, and reads what it prints.

Runs in the bench's process. The generator is a separate process, with one thread by default.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.stats import Measures

SOURCES = Path(__file__).with_name("loadgen")
FLAGS = ("-std=c++17", "-O2", "-pthread")
FOLDER = Path(__file__).parents[1] / "build" / "bench"


def program() -> Path:
    """Return the path of the generator, which is compiled first if necessary."""
    compiler = os.environ.get("CXX") or next((n for n in ("c++", "g++", "clang++") if shutil.which(n)), None)
    if compiler is None:
        raise BenchError("a C++ compiler is missing (looked for c++, g++, clang++): install one, or set CXX")
    files = sorted(SOURCES.glob("*.?pp"))
    digest = hashlib.sha256(f"{compiler}{FLAGS}".encode() + b"".join(file.read_bytes() for file in files))
    made = FOLDER / f"loadgen-{digest.hexdigest()[:12]}"
    if made.is_file():
        return made
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        beside = Path(folder) / "loadgen"
        command = [*shlex.split(compiler), *FLAGS, "-o", str(beside), str(SOURCES / "loadgen.cpp")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"the load generator cannot be compiled: {done.stderr.strip()}")
        beside.rename(made)
    return made


@dataclass(frozen=True, slots=True)
class Group:
    """A number of connections, and the JSON bodies that are sent on them in turn; none for a GET."""

    n_connections: int
    bodies: Sequence[Any]
    path: str = "/completion"

    def flags(self, prefix: str, folder: Path) -> list[str]:
        out = [f"--{prefix}connections", str(self.n_connections), f"--{prefix}path", self.path]
        if self.bodies:
            file = folder / f"{prefix}bodies"
            with file.open("w", encoding="utf-8") as lines:
                for body in self.bodies:
                    lines.write(json.dumps(body, separators=(",", ":")) + "\n")
            out += [f"--{prefix}bodies", str(file)]
        return out


def streams(
    port: int | None,
    main: Group,
    side: Group | None = None,
    timeout_s: float = 600.0,
    n_each: int = 1,
    n_side_each: int = 0,
) -> Measures:
    """Run streams that start at once; each connection sends `n_each`, one after another. Without a port the generator
    measures itself, with a server without a model. The streams of a side group arrive while the others decode:
    `n_side_each` on each connection, or without end. Gaps are only measured while they do."""
    where = ["--null-server"] if port is None else ["--port", str(port)]
    flags = [*where, "--each", str(n_each), "--side-each", str(n_side_each)]
    return _run(flags, main, side, timeout_s)


def requests(
    port: int,
    main: Group,
    seconds: float,
    side: Group | None = None,
    timeout_s: float = 600.0,
    n_threads: int = 1,
    rate: float = 0.0,
) -> Measures:
    """Send short requests one after another, or at a fixed rate, while the side group's streams decode."""
    method = "POST" if main.bodies else "GET"
    flags = ["--port", str(port), "--requests", "--method", method, "--seconds", str(seconds)]
    return _run([*flags, "--threads", str(n_threads), "--rate", str(rate)], main, side, timeout_s)


def _run(flags: list[str], main: Group, side: Group | None, timeout_s: float) -> Measures:
    with tempfile.TemporaryDirectory(prefix="llamad-load-") as name:
        folder = Path(name)
        groups = [*main.flags("", folder), *(side.flags("side-", folder) if side else [])]
        command = [str(program()), *flags, *groups, "--timeout", str(timeout_s)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]
        raise BenchError(last.removeprefix("loadgen: "))
    return {
        key: math.nan if value is None else float(value) for key, value in json.loads(done.stdout).items()
    }
