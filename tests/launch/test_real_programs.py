"""The real programs, launched with a daemon whose model answers "Pong."; skipped where they are not installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

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
    """It leaves no configuration in the user's home."""
    home = tmp_path / "home"
    done = ask(program, server, launch, home, monkeypatch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert REPLY in done.stdout
    for name in sorted({name for one, _, files in OTHERS if one == program for name in files}):
        assert not (home / name).exists(), name


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    """Another service, to which nothing may go."""
    service = Elsewhere()
    yield service
    service.shutdown()
    service.server_close()


class Elsewhere(ThreadingHTTPServer):
    """Refuses every request, and remembers its path and its key."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusing)
        self.asked: list[tuple[str, str]] = []
        Thread(target=self.serve_forever, daemon=True).start()


class _Refusing(BaseHTTPRequestHandler):
    server: Elsewhere

    def do_POST(self) -> None:
        self.server.asked.append((self.path, self.headers.get("authorization", "")))
        self.send_error(400)

    do_GET = do_CONNECT = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


# What a user may have set for another service, whose address is "@". None of it may win over the launch.
_OPENAI = {"openai": {"options": {"baseURL": "@/v1", "apiKey": "x"}, "models": {"other": {}}}}
_CLOUD = {
    "CLAUDE_CODE_USE_VERTEX": "1",
    "ANTHROPIC_VERTEX_BASE_URL": "@",
    "ANTHROPIC_VERTEX_PROJECT_ID": "p",
    "CLOUD_ML_REGION": "r",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
}
OTHERS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "claude",
        "address",
        {
            ".claude/settings.json": {
                "model": "other",
                "env": {"ANTHROPIC_BASE_URL": "@", "ANTHROPIC_MODEL": "other", "ANTHROPIC_API_KEY": "x"},
            }
        },
    ),
    ("claude", "cloud", {".claude/settings.json": {"env": _CLOUD}}),
    (
        "claude",
        "proxy",
        {".claude/settings.json": {"env": {"HTTP_PROXY": "@", "HTTPS_PROXY": "@", "NO_PROXY": ""}}},
    ),
    (
        "codex",
        "provider",
        {
            ".codex/config.toml": 'model = "other"\nmodel_provider = "elsewhere"\n\n'
            '[model_providers.elsewhere]\nname = "elsewhere"\nbase_url = "@/v1"\nwire_api = "responses"\n'
        },
    ),
    (
        "opencode",
        "address",
        {
            ".config/opencode/opencode.json": {
                "model": "openai/other",
                "provider": {"llamad": {"options": {"baseURL": "@/v1"}}},
            },
            "opencode.json": {"model": "openai/other", "small_model": "openai/other"},
        },
    ),
    (
        "opencode",
        "agents",
        {
            ".config/opencode/opencode.json": {
                "provider": _OPENAI,
                "agent": {name: {"model": "openai/other"} for name in ("build", "title")},
                "disabled_providers": ["llamad"],
            },
        },
    ),
    (
        "qwen",
        "address",
        {
            ".qwen/settings.json": {
                "env": {"OPENAI_BASE_URL": "@/v1", "OPENAI_API_KEY": "x"},
                "security": {"auth": {"selectedType": "qwen-oauth", "baseUrl": "@/v1", "apiKey": "x"}},
                "model": {"name": "other"},
            },
            ".env": "OPENAI_BASE_URL=@/v1\nOPENAI_API_KEY=x\nOPENAI_MODEL=other\n",
        },
    ),
    (
        "qwen",
        "provider",
        {
            ".qwen/settings.json": {
                "modelProviders": {"openai": [{"id": "other", "baseUrl": "@/v1", "envKey": "OTHER_KEY"}]},
                "env": {"OTHER_KEY": "x"},
                "model": {"name": "other"},
            }
        },
    ),
    (
        "aider",
        "address",
        {
            ".env": "OPENAI_API_BASE=@/v1\nOPENAI_API_KEY=x\nAIDER_MODEL=openai/other\n",
            ".aider.conf.yml": "model: openai/other\nopenai-api-base: @/v1\n",
        },
    ),
    (
        "aider",
        "editor",
        {
            ".env": "DEEPSEEK_API_BASE=@\nDEEPSEEK_API_KEY=x\n",
            ".aider.conf.yml": "architect: true\neditor-model: deepseek/other\n",
        },
    ),
]


@pytest.mark.parametrize(
    ("program", "files"),
    [pytest.param(program, files, id=f"{program}-{case}") for program, case, files in OTHERS],
)
def test_a_configuration_for_another_service_does_not_win(
    program: str,
    files: dict[str, Any],
    server: Live,
    launch: Launch,
    elsewhere: Elsewhere,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is it changed, but for what a program itself adds to its own files."""
    home, url = tmp_path / "home", f"http://127.0.0.1:{elsewhere.server_port}"
    texts = {
        name: (content if isinstance(content, str) else json.dumps(content)).replace("@", url)
        for name, content in files.items()
    }
    for name, text in texts.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    done = ask(program, server, launch, home, monkeypatch)
    assert elsewhere.asked == []
    assert done.returncode == 0, done.stdout + done.stderr
    assert REPLY in done.stdout
    for name, text in texts.items():
        after = (home / name).read_text()
        if isinstance(files[name], str):
            assert after == text
        else:
            assert {**json.loads(after), **json.loads(text)} == json.loads(after)
