"""Runs a real program on a small project with the scripted model, and returns the requests that it made.

The program gets the settings of `llamad launch`, a home of its own and no key. Nothing of it is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.sessions import script
from bench.sessions.script import MAIN, Step
from bench.sessions.scripted_model import N_CTX, Recorded, ScriptedModel
from llamad.launch.programs import PROGRAMS
from llamad.launch.programs.program import NO_KEY, Served

SECONDS = 420.0
# How each program works without a terminal and without asking.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "claude": ("--allowedTools=Bash,Read,Write,Edit,Task,Agent", "-p"),
    "codex": ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"),
    "opencode": ("run",),
    "qwen": ("--yolo", "-p"),
    "aider": (
        "--yes-always",
        "--no-stream",
        "--no-fancy-input",
        "--no-pretty",
        "--no-check-update",
        "--edit-format=diff",  # that of the script's answers; it would be another one for an unknown model
    ),
}
# The messages that a user types to a program without tools. Each is answered with an edit.
N_TYPED = 22


@dataclass(frozen=True, slots=True)
class Session:
    """What a program asked and said, and the files of the project afterwards."""

    requests: list[Recorded]
    said: str
    files: dict[str, str]


def installed() -> list[str]:
    return [name for name in ARGUMENTS if shutil.which(name)]


def record(
    name: str,
    steps: Sequence[Sequence[Step]] = MAIN,
    make: Callable[..., ScriptedModel] = ScriptedModel,
    n_typed: int = N_TYPED,
) -> Session:
    """Return one session. Raises BenchError if the program does not end well, or has changed no file."""
    path = shutil.which(name)
    if path is None:
        raise BenchError(f"{name} is not in PATH: {PROGRAMS[name].install}")
    with tempfile.TemporaryDirectory(prefix="llamad-session-") as root:
        home, project = Path(root, "home"), Path(root, "project")
        home.mkdir()
        project.mkdir()
        for file, text in script.files().items():
            (project / file).write_text(text)
        model = make(str(project), steps)
        try:
            said = _run(path, name, model.url, home, project, n_typed)
        finally:
            model.stop()
        if not model.requests:
            raise BenchError(f"{name} has asked nothing: {said[-500:]}")
        written = {one.name: one.read_text() for one in project.iterdir() if one.is_file()}
        if {file: text for file, text in written.items() if not file.startswith(".")} == script.files():
            raise BenchError(f"{name} has changed nothing: {said[-500:]}")
        return Session(model.requests, said, written)


def _run(path: str, name: str, url: str, home: Path, project: Path, n_typed: int) -> str:
    """Run the program and return what it wrote."""
    setup = PROGRAMS[name].setup(Served(url, "scripted", N_CTX))
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb", **setup.environ}
    environ |= dict.fromkeys(setup.keys, NO_KEY)
    for i, (variable, text) in enumerate(setup.files.items()):
        file = home / f"setting-{i}.json"
        file.write_text(text)
        environ[variable] = str(file)
    subprocess.run(["git", "init", "-q"], cwd=project, env=environ, check=True)
    command = [path, *setup.arguments, *ARGUMENTS[name]]
    typed = ""
    if name == "aider":
        command += sorted(script.files())
        typed = "".join(f"Comment on module {i}, turn {i}.\n" for i in range(n_typed))
    else:
        command.append(script.TASK)
    try:
        done = subprocess.run(
            command,
            cwd=project,
            env=environ,
            input=typed,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{name} did not end within {SECONDS:g} s") from None
    if done.returncode:
        raise BenchError(f"{name} ended with status {done.returncode}: {(done.stdout + done.stderr)[-500:]}")
    return done.stdout + done.stderr
