"""Builds a fuzz target with the engine's very sources, and runs it under libFuzzer. For fuzz/*.py."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "fuzz"
SANITIZED = ["-DREPLAY_MAIN", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
# A target brings its sanitizers along; those that `make asan` preloads and directs are for the modules.
FOREIGN = ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")


def _run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return subprocess.run(command, cwd=ROOT, env=env, text=True, check=False, **options)


@dataclass(frozen=True)
class Target:
    """fuzz/NAME_target.cpp with all sources of one folder of ext/llamad."""

    name: str
    folder: str
    corpus_name: str = ""  # of another target with the same inputs

    @property
    def corpus(self) -> Path:
        return ROOT / "fuzz" / "corpus" / (self.corpus_name or self.name)

    def build(self, compiler: str, flags: list[str], kind: str) -> Path:
        BUILT.mkdir(parents=True, exist_ok=True)
        program = BUILT / f"{self.name}-{kind}"
        engine = sorted((ROOT / "ext" / "llamad" / self.folder).glob("*.cpp"))
        sources = [ROOT / "fuzz" / f"{self.name}_target.cpp", *engine]
        command = [
            compiler,
            "-std=c++17",
            "-g",
            "-O1",
            "-I",
            "ext",
            *flags,
            "-o",
            str(program),
            *map(str, sources),
        ]
        assert _run(command).returncode == 0, "the target does not compile"
        return program

    def replay(self, *arguments: str) -> str:
        """Under the sanitizers, over the whole corpus: what the target prints."""
        program = self.build("g++", SANITIZED, "replay")
        files = map(str, sorted(self.corpus.iterdir()))
        done = _run([str(program), *files, *arguments], capture_output=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def libfuzzer(self, n_seconds: int, bytes_max: int) -> None:
        clang = next((path for name in ("clang++", "clang++-14") if (path := shutil.which(name))), None)
        if clang is None:
            pytest.fail("libFuzzer needs clang: apt install clang libclang-rt-14-dev")
        flags = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
        program = self.build(clang, flags, "libfuzzer")
        binary = BUILT / self.name
        binary.mkdir(exist_ok=True)
        limits = [
            f"-max_total_time={n_seconds}",
            "-timeout=10",
            "-rss_limit_mb=2048",
            f"-max_len={bytes_max}",
        ]
        done = _run(
            [str(program), *limits, f"-artifact_prefix={BUILT}/crash-", str(binary), str(self.corpus)],
            capture_output=True,
        )
        print(done.stderr[-600:])
        assert done.returncode == 0, done.stderr[-6000:]
