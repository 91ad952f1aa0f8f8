"""Asks vendor/llama.cpp for files to measure with: the default model, or Llama 3's vocabulary."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.errors import BenchError

RECIPE = Path(__file__).parents[2] / "vendor" / "llama.cpp"


def path_of(what: str) -> str:
    """Return the path of `model` or `vocabulary`. It is fetched if it is not there yet."""
    done = subprocess.run([sys.executable, str(RECIPE), what], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(done.stderr.strip())
    return done.stdout.strip()
