"""The real programs, launched with a daemon whose model answers "Pong."; skipped where they are not installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.clients.launched import KEY, REPLY, Launch
from support.live_daemon import Live

# How each program is asked once, without a terminal.
ASKED = {
    "claude": ("-p", "ping"),
    "codex": ("exec", "--skip-git-repo-check", "ping"),
    "opencode": ("run", "ping"),
    "qwen": ("-p", "ping"),
    "aider": ("--message", "ping", "--no-git", "--yes-always", "--no-stream"),
}


@pytest.mark.parametrize("program", ASKED)
def test_it_gets_an_answer(
    program: str, server: Live, launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    folders = f"{Path(path).parent}:/usr/local/bin:/usr/bin:/bin"
    arguments = ("--port", str(server.client.port), "--", *ASKED[program])
    done = launch(program, *arguments, path=folders, LLAMA_API_KEY=KEY)
    assert done.returncode == 0, done.stdout + done.stderr
    assert REPLY in done.stdout
