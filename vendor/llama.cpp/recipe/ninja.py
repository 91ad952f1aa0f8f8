"""Runs CMake and Ninja. Their output goes to a log and their steps to the progress line; the reason of a failure is
kept for the error of one line.
"""

import os
import re
import subprocess
from collections import deque
from pathlib import Path

from . import children
from .report import Progress, display, lines_or_silence, says_disk_full

TAIL_LINES = 30
STATUS = "[%f/%t] "
NOISE = ("ninja: Entering directory", "ninja: Jobserver mode detected")


class Failed(Exception):
    """The tool ended with an error; `steps` has the reason."""

    def __init__(self, steps: "Steps") -> None:
        super().__init__()
        self.steps = steps


def run(
    command: list[str], title: str, log: Path, env: dict[str, str], pass_fds: tuple[int, ...] = ()
) -> None:
    """Run a tool, append its output to the log and show its `[done/total]` steps as progress."""
    progress = Progress(title)
    steps = Steps(progress)
    try:
        with (
            log.open("a", encoding="utf-8") as out,
            children.running(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**env, "NINJA_STATUS": STATUS},
                pass_fds=pass_fds,
            ) as process,
        ):
            assert process.stdout is not None  # PIPE above
            for line in lines_or_silence(process.stdout):
                if line is None:
                    steps.show()
                else:
                    out.write(line)
                    steps.take(line)
    except BaseException:
        progress.abandon()
        raise
    if process.returncode != 0:
        progress.abandon()
        raise Failed(steps)
    if steps.n_total:
        progress.close(f"[{steps.n_total}/{steps.n_total}] built")


def pending(command: list[str], title: str) -> list[str]:
    """Return the steps that Ninja would run, and tell them to the display."""
    env = {**os.environ, "NINJA_STATUS": STATUS}
    output = subprocess.run([*command, "-n"], capture_output=True, text=True, env=env, check=False).stdout
    steps = [step for line in output.splitlines() if (step := step_of(line))]
    if shown := display():
        shown.expect(title, steps)
    return steps


def learn(title: str, folder: Path) -> None:
    """Tell the display how long each step took, from Ninja's own log in `folder`."""
    shown = display()
    if shown is None:
        return
    try:
        lines = (folder / ".ninja_log").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    fields = [line.split("\t") for line in lines if not line.startswith("#")]
    shown.learn(title, {f[3]: (int(f[1]) - int(f[0])) / 1000 for f in fields if len(f) >= 5})


def step_of(line: str) -> str:
    """Return the file of a line such as `[3/142] Building CXX object src/llama-model.cpp.o`; "" for other lines."""
    return line.split()[-1] if re.match(r"\[\d+/\d+\] ", line) else ""


class Steps:
    """Reads from a tool's output how far it is, and why it failed."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.n_done = self.n_total = 0
        self._name = ""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.disk_full = self.out_of_memory = False

    def take(self, line: str) -> None:
        if step := re.match(r"\[(\d+)/(\d+)\] ", line):
            self.n_done, self.n_total = int(step[1]), int(step[2])
            self._name = Path(step_of(line)).name.removesuffix(".o")
            self.show(step_of(line))
            return
        if line.startswith(NOISE):
            return
        self.tail.append(line.rstrip("\n"))
        self.disk_full = self.disk_full or says_disk_full(line)
        self.out_of_memory = self.out_of_memory or "Killed signal terminated program" in line

    def show(self, step: str = "") -> None:
        if self.n_total:
            self._progress.update(self.n_done, self.n_total, self._name, step)
