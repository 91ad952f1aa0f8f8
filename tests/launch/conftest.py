"""A daemon whose model answers every chat with the same word, and stand-ins for the programs that can be launched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.launched import KEY, REPLY, SERVED, Launch
from support.live_daemon import Live
from support.models.bigram_model import write_bigram


@pytest.fixture(scope="session")
def scripted_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_bigram(tmp_path_factory.mktemp("scripted") / "scripted.gguf", chain=("@", REPLY))


@pytest.fixture(scope="module")
def server(scripted_model: str) -> Iterator[Live]:
    with Live(*SERVED, model=scripted_model, env={"LLAMA_API_KEY": KEY}) as live:
        yield live


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A folder of programs with the names of the real ones. Each writes its arguments, its variables and the command
    lines of all processes to a file, and ends with the status 7."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("claude", "codex", "opencode", "qwen", "aider"):
        program = folder / name
        program.write_text(
            f"#!{sys.executable}\n"
            "import glob, json, os, sys\n"
            "seen = {'arguments': sys.argv[1:], 'environ': dict(os.environ), 'files': {}, 'processes': []}\n"
            "for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
            "    try:\n"
            "        seen['processes'].append(open(path, errors='replace').read())\n"
            "    except OSError:\n"
            "        pass\n"
            "for key, value in os.environ.items():\n"
            "    if key.endswith('_FILE') and os.path.isfile(value):\n"
            "        seen['files'][key] = open(value).read()\n"
            "json.dump(seen, open(os.environ['SEEN'], 'w'))\n"
            "sys.exit(7)\n"
        )
        program.chmod(0o755)
    return folder


@pytest.fixture
def launch(tmp_path: Path, stand_ins: Path) -> Launch:
    """Runs `llamad launch` in an empty home."""

    def run(*arguments: str, path: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "PATH": path or f"{stand_ins}:{os.environ['PATH']}",
            "HOME": str(tmp_path / "home"),
            "SEEN": str(tmp_path / "seen.json"),
            **environ,
        }
        command = [sys.executable, "-m", "llamad", "launch", *arguments]
        return subprocess.run(
            command,
            env=variables,
            capture_output=True,
            text=True,
            timeout=240,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run
