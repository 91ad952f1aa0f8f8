"""docs/clients.md: the coding agents' blocks say what `llamad launch` sets, and the programs that are installed get an
answer with them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.clients.launched import KEY, REPLY, SERVED
from support.live_daemon import Live
from support.models.bigram_model import write_bigram

from llamad.launch.programs import PROGRAMS
from llamad.launch.programs.program import NO_KEY, Served, Setup

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
URL = "http://localhost:8080"
TITLES = {
    "claude": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "qwen": "Qwen Code",
    "aider": "aider",
}
# Arguments that ask for one answer without a terminal.
ASKED = {
    "claude": "-p ping",
    "codex": "exec --skip-git-repo-check ping",
    "opencode": "run ping",
    "qwen": "-p ping",
    "aider": "--message ping --no-git --yes-always --no-stream",
}
# `llamad launch` also says these, which change no answer.
ONLY_LAUNCHED = {"AIDER_SHOW_MODEL_WARNINGS", "AIDER_CHECK_UPDATE", "AIDER_ANALYTICS"}
# With these `llamad launch` wins over opencode's other configuration, which a page should leave alone.
OVER_OTHERS = {"enabled_providers", "disabled_providers", "agent"}


def section(program: str) -> str:
    return PAGE.partition(f"### {TITLES[program]}\n")[2].partition("\n#")[0]


def block(program: str, language: str) -> str:
    fenced = re.search(rf"^```{language}\n(.*?)^```$", section(program), re.MULTILINE | re.DOTALL)
    assert fenced is not None, f"{program} has no {language}"
    return fenced[1]


def launched(program: str) -> Setup:
    return PROGRAMS[program].setup(Served(URL, "my-model", 32768))


def exported(program: str) -> dict[str, str]:
    return dict(re.findall(r"^export (\w+)=(\S+)$", block(program, "sh"), re.MULTILINE))


def flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """A TOML table as dotted names."""
    names: dict[str, Any] = {}
    for name, value in values.items():
        names |= flat(value, f"{before}{name}.") if isinstance(value, dict) else {f"{before}{name}": value}
    return names


@pytest.mark.parametrize("program", PROGRAMS)
def test_variables_are_those_of_launch(program: str) -> None:
    setup = launched(program)
    wanted = {name: value for name, value in setup.environ.items() if name not in ONLY_LAUNCHED}
    wanted.pop("OPENCODE_CONFIG_CONTENT", None)
    assert exported(program) == {**wanted, **dict.fromkeys(setup.keys, NO_KEY)}
    lines = re.findall(r"^unset (.*)$", block(program, "sh"), re.MULTILINE)
    assert {name for line in lines for name in line.split()} == set(setup.unset)


def test_files_are_those_of_launch() -> None:
    words = launched("codex").arguments[1::2]
    assert flat(tomllib.loads(block("codex", "toml"))) == {
        name: json.loads(value) for name, _, value in (word.partition("=") for word in words)
    }
    config = json.loads(launched("opencode").environ["OPENCODE_CONFIG_CONTENT"])
    assert json.loads(block("opencode", "json")) == {
        name: value for name, value in config.items() if name not in OVER_OTHERS
    }
    aider = launched("aider")
    assert json.loads(block("aider", "json")) == json.loads(aider.files["AIDER_MODEL_METADATA_FILE"])
    for program in ("aider", "qwen"):
        last = block(program, "sh").splitlines()[-1]
        assert last == " ".join((program, *launched(program).arguments))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    model = write_bigram(tmp_path_factory.mktemp("scripted") / "scripted.gguf", chain=("@", REPLY))
    served = [word if word != "echo" else "my-model" for word in SERVED]
    with Live(*served, model=model, env={"LLAMA_API_KEY": KEY}) as live:
        yield live


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_with_its_block_gets_an_answer(program: str, server: Live, tmp_path: Path) -> None:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    for name, text in re.findall(
        r"^In `~/([^`]+)`:\n\n```\w+\n(.*?)^```$", section(program), re.MULTILINE | re.DOTALL
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace(URL, f"http://127.0.0.1:{server.client.port}"))
    script = block(program, "sh").replace(URL, f"http://127.0.0.1:{server.client.port}")
    done = subprocess.run(
        ["sh", "-ec", f"{script.replace('=none', f'={KEY}').rstrip()} {ASKED[program]}"],
        cwd=tmp_path,
        env={"PATH": f"{Path(path).parent}:{os.defpath}:/usr/local/bin", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert REPLY in done.stdout
