"""Engines that are killed while they save, share and drop prompts: the next one uses only what is right, and no memory
is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.states import killed_engines

TESTS = str(Path(__file__).parents[2])


@pytest.mark.parametrize(
    ("seed", "kind"), [(1, "ranges"), (2, "ranges"), (3, "streams"), (4, "window"), (5, "unified hybrid")]
)
def test_the_next_engine_uses_only_what_is_right(seed: int, kind: str) -> None:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), TESTS]))
    done = subprocess.run(
        [sys.executable, killed_engines.__file__, str(seed), "12", kind],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
