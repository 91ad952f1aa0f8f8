"""The real programs, launched with a daemon whose model answers "Pong."; skipped where they are not installed."""

from __future__ import annotations

import json
import shutil
import subprocess
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


def ask(
    program: str, server: Live, launch: Launch, home: Path, monkeypatch: pytest.MonkeyPatch
) -> subprocess.CompletedProcess[str]:
    """Launch the program in the folder `home`, which is the user's home, too."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    home.mkdir(exist_ok=True)
    monkeypatch.chdir(home)
    folders = f"{Path(path).parent}:/usr/local/bin:/usr/bin:/bin"
    arguments = ("--port", str(server.client.port), "--", *ASKED[program])
    return launch(program, *arguments, path=folders, LLAMA_API_KEY=KEY)


@pytest.mark.parametrize("program", ASKED)
def test_it_gets_an_answer(
    program: str, server: Live, launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ask(program, server, launch, tmp_path / "home", monkeypatch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert REPLY in done.stdout


# What a user may have set for another service. None of it may win over the launch.
ELSEWHERE = "http://127.0.0.1:9"
OTHERS = {
    "claude": {
        ".claude/settings.json": json.dumps(
            {
                "model": "other",
                "env": {
                    "ANTHROPIC_BASE_URL": ELSEWHERE,
                    "ANTHROPIC_MODEL": "other",
                },
            }
        )
    },
    "codex": {
        ".codex/config.toml": 'model = "other"\nmodel_provider = "elsewhere"\n\n[model_providers.elsewhere]\n'
        f'name = "elsewhere"\nbase_url = "{ELSEWHERE}/v1"\nwire_api = "responses"\n'
    },
    "opencode": {
        ".config/opencode/opencode.json": json.dumps(
            {"model": "openai/other", "provider": {"llamad": {"options": {"baseURL": f"{ELSEWHERE}/v1"}}}}
        ),
        "opencode.json": json.dumps({"model": "openai/other", "small_model": "openai/other"}),
    },
    "qwen": {
        ".qwen/settings.json": json.dumps(
            {
                "env": {"OPENAI_BASE_URL": f"{ELSEWHERE}/v1", "OPENAI_API_KEY": "x"},
                "security": {
                    "auth": {"selectedType": "qwen-oauth", "baseUrl": f"{ELSEWHERE}/v1", "apiKey": "x"}
                },
                "model": {"name": "other"},
            }
        ),
        ".env": f"OPENAI_BASE_URL={ELSEWHERE}/v1\nOPENAI_API_KEY=x\nOPENAI_MODEL=other\n",
    },
    "aider": {
        ".env": f"OPENAI_API_BASE={ELSEWHERE}/v1\nOPENAI_API_KEY=x\nAIDER_MODEL=openai/other\n",
        ".aider.conf.yml": f"model: openai/other\nopenai-api-base: {ELSEWHERE}/v1\n",
    },
}


@pytest.mark.parametrize("program", OTHERS)
def test_a_configuration_for_another_service_does_not_win(
    program: str, server: Live, launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name, text in OTHERS[program].items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    done = ask(program, server, launch, home, monkeypatch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert REPLY in done.stdout
