"""What runs under `make asan` and `make tsan`: the modules built for it, also in the children that tests start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.gguf_loading import Loader
from support.libfuzzer import Target

from tiny_llama_cpp import CHECKOUT
from tools import sanitize


@pytest.fixture
def asan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Its environment, without the runtime itself: nothing here was compiled for it."""
    env = sanitize.environment("asan", tmp_path / "package", tmp_path / "reports")
    for name, value in env.items():
        if name != "LD_PRELOAD":
            monkeypatch.setenv(name, value)
    return env


def test_the_engine_runs_over_the_fake() -> None:
    names = sanitize.over_the_fake()

    assert any("scheduler" in name for name in names)
    assert all((CHECKOUT / name).is_file() for name in names)


def test_the_modules_come_before_the_checkouts(asan: dict[str, str], tmp_path: Path) -> None:
    """Without the checkout behind them, tests of grammars could not import bench."""
    for name in ("package/llamad", "package/llamad/base"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
    code = "import bench.micro, llamad.base; print(bench.__file__, llamad.base.__file__, sep='\\n')"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT
    ).stdout

    folders = [Path(line).parent for line in shown.splitlines()]
    assert folders == [CHECKOUT / "bench", tmp_path / "package/llamad/base"]


def test_a_child_that_bounds_its_memory_can_run(asan: dict[str, str]) -> None:
    """The schema converter takes 1 GiB of addresses at most. A sanitizer has terabytes: its first mmap failed, and
    every request with a schema was a 500."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(resource.getrlimit(resource.RLIMIT_AS)[0] == 1 << 30, resource.getrlimit(resource.RLIMIT_CORE)[0])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert shown.split() == ["False", "0"]


def test_models_are_loaded_with_the_sanitized_modules(
    asan: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were the checkout's: it came first on the child's path."""
    started: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: started.append(env))
    Loader()

    assert started[0]["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "package")


def test_a_target_with_sanitizers_of_its_own_is_left_to_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """clang's runtime refuses to start beside GCC's, which is preloaded; and its reports belong to its own output."""
    seen: list[dict[str, str]] = []

    def run(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        seen.append(env)
        return subprocess.CompletedProcess(command, 0, "", "")

    for name, value in sanitize.environment("asan", tmp_path, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(subprocess, "run", run)
    Target("grammar", "grammar").replay()

    assert len(seen) == 2
    assert not any({"LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS"} & set(env) for env in seen)
