"""Owns the load generator, loadgen/: compiles it when it has changed, runs it, reads what it prints.

Runs in the bench's process; the generator is a process of its own, with one thread unless asked for more.
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
    """The generator, compiled now unless it has been."""
    compiler = os.environ.get("CXX") or next((n for n in ("c++", "g++", "clang++") if shutil.which(n)), None)
    if compiler is None:
        raise BenchError("a C++ compiler is missing (looked for c++, g++, clang++): install one, or set CXX")
    parts = sorted(SOURCES.glob("*.?pp"))
    digest = hashlib.sha256(f"{compiler}{FLAGS}".encode() + b"".join(part.read_bytes() for part in parts))
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
    """So many connections and what is sent on them, in turn: JSON bodies, or none for a GET."""

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
    """Streams that start at once; each connection sends `n_each`, the next when the last has ended. Without a port
    the generator measures itself, against a server without a model. A side group's streams arrive while the others
    decode: on each connection so many, or without end; gaps are of the time in which they do."""
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
    """Short requests again and again, or at a fixed rate, while the side group's streams decode."""
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
