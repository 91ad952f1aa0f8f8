"""Gives the tests of the bench a server to measure."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FAKE_PROGRAM = Path(__file__).with_name("fake_program.py")


def _fake() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_fake_program", FAKE_PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """A fake server, listening."""
    server = _fake().serve(0)
    yield server.server_address
    server.shutdown()
    server.server_close()


@pytest.fixture
def fake_program(tmp_path: Path) -> str:
    """The fake as a program of its own, to stand for llama-server."""
    path = tmp_path / "fake-server"
    path.write_text(f"#!{sys.executable}\n{FAKE_PROGRAM.read_text()}")
    path.chmod(0o755)
    return str(path)
