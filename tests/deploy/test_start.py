"""Every command of docs/start.md in an empty Debian, and how long each takes. `make soak` runs it.

LLAMAD_TEST_WHEEL names a wheel of `make wheel`; else that is made first. Settings of a package index and the caches are
taken from the environment; LLAMAD_TEST_FOLDERS has the folders and files that they name, separated by colons.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from support.booted import empty_root
from support.booted.empty_root import Shell
from support.hub.server import HubServer
from support.imports import ROOT
from support.live_daemon import model_path

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(empty_root.why_not()), reason=empty_root.why_not()),
]

PAGE = (ROOT / "docs" / "start.md").read_text()
REPO = "tiny/model-GGUF"
SERVERS = ("make run", "llamad")  # commands that go on until they are ended


def commands(title: str) -> list[str]:
    """Return the commands of a section, in order."""
    (section,) = re.findall(rf"(?ms)^## {title}$\n(.*?)(?=^## |\Z)", PAGE)
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```", section)
    lines = "".join(blocks).replace("\\\n", " ")
    # A quoted text may have several lines.
    return [one.strip() for one in re.findall(r"(?:'[^']*'|[^'\n])+", lines) if one.strip()]


def is_server(command: str) -> bool:
    return command.startswith(SERVERS)


def replay(
    shell: Shell, title: str, place: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> dict[str, str]:
    """Run each command of a section, print how long it took, and return what each printed."""
    printed = {}
    for command in commands(title):
        if is_server(command) and any(map(is_server, printed)):
            shell.stop()
        for word, instead in place.items():
            command = command.replace(word, instead)
        begin = time.monotonic()
        if is_server(command):
            shell.serve(command)
            printed[command] = shell.log()
        else:
            printed[command] = shell.run(command)
        with capsys.disabled():
            print(f"\n{time.monotonic() - begin:8.1f} s  {command.splitlines()[0]}", end="", flush=True)
    shell.stop()
    return printed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    named = os.environ.get("LLAMAD_TEST_WHEEL")
    if named is None:
        before = set((ROOT / "dist").glob("*.whl"))
        subprocess.run(["make", "wheel"], cwd=ROOT, check=True)
        named = str(max({*(ROOT / "dist").glob("*.whl"), *before}, key=os.path.getmtime))
    shutil.copy(named, folder)
    return folder


def answer(printed: dict[str, str]) -> str:
    """Return the text that the model answered to curl."""
    (output,) = [text for command, text in printed.items() if command.startswith("curl")]
    reply = json.loads(output[output.index("{") :])
    return str(reply["choices"][0]["message"]["content"])


def downloaded(shell: Shell, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the answer of a model that llamad downloads by its name, from a hub of the test's own."""
    hub = HubServer()
    hub.repos[REPO] = {"model.gguf": Path(model_path()).read_bytes()}
    begin = time.monotonic()
    try:
        shell.serve(f"HF_ENDPOINT={hub.url} llamad -hf {REPO}")
        answered = shell.run(
            "curl -s http://127.0.0.1:8080/v1/chat/completions -d "
            """'{"max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}'"""
        )
        shell.stop()
    finally:
        hub.close()
    with capsys.disabled():
        print(f"\n{time.monotonic() - begin:8.1f} s  llamad -hf {REPO}", end="", flush=True)
    return answered


def test_with_a_wheel(tmp_path: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = {"/root/wheel": wheel, "/path/to/model.gguf": Path(model_path())}
    with Shell(tmp_path, folders) as shell:
        shell.run("cd /root/wheel")
        printed = replay(shell, "With a wheel", {}, capsys)

        assert answer(printed)
        assert "llamad pull" in printed["llamad"]  # a hint what to do without a model
        missing = shell.run("command -v c++ cc make || echo none")
        assert missing.strip() == "none"
        assert "chat.completion" in downloaded(shell, capsys)


def test_from_a_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Shell(tmp_path, {"/mnt/checkout": ROOT, "/path/to/model.gguf": Path(model_path())}) as shell:
        printed = replay(shell, "From a clone", {"ADDRESS": "file:///mnt/checkout"}, capsys)

        assert answer(printed)
