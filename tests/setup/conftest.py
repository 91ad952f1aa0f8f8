"""Fixtures of the set-up tests; makes the recipe and the tests' own helper importable. No test may need a
network or a cache beyond its own folder.
"""

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(CHECKOUT / "ext"), str(CHECKOUT / "vendor" / "llama.cpp")]

from tiny_llama_cpp import Recipe, write_tree  # noqa: E402


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return Recipe(tmp_path / "cache")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "tree")


@pytest.fixture
def real_cxx() -> str:
    compiler = shutil.which("c++")
    assert compiler, "the tests need a C++ compiler, as the program does"
    return compiler
