"""What the scripted model answers: which tool it calls next in a conversation, and what it says at the end. Must not
know a dialect.

The script depends on the conversation alone, so that every program gets the same task, whatever order its requests
have: the calls that a conversation has so far say which step is next.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# The first words of a task that a sub-agent gets.
DELEGATED = "Sub-task:"
TASK = "Read the modules of this project, change what is wrong, and tell me when you are done."
DONE = "The task is done."

# How programs ask for a summary of a conversation that is too long.
_SUMMARY = re.compile(
    r"create a detailed summary|anchored summary|state_snapshot|summary template", re.IGNORECASE
)

N_MODULES = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """What the script has to know of a request."""

    tools: tuple[str, ...]
    n_calls: int  # the calls of the conversation so far
    text: str  # what system and users say
    n_users: int = 0  # the messages of users
    last: str = ""  # the last of them


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Step:
    """One action: read or write a file, run a command, or delegate a task."""

    action: str
    target: str
    text: str = ""


def module(i: int) -> str:
    return f"module_{i:02}.py"


def source(i: int) -> str:
    """Return the source of a module, some 500 tokens long."""
    functions = (
        f"def function_{i}_{j}(value: int) -> int:\n"
        f'    """Return the value, changed in step {j} of module {i}."""\n'
        f"    result = value * {i + 3} + {j * 17}\n"
        f"    return result % {101 + 2 * j}\n"
        for j in range(8)
    )
    return "\n\n".join(functions)


def files() -> dict[str, str]:
    """Return the project that the programs work on."""
    return {module(i): source(i) for i in range(N_MODULES)}


def _main_steps() -> list[Sequence[Step]]:
    steps: list[Sequence[Step]] = [(Step("run", "ls -l"),)]
    for i in range(N_MODULES):
        steps.append((Step("read", module(i)),))
        if i % 3 == 1:
            steps.append((Step("run", f"head -n 4 {module(i)}; wc {module(i)}"),))
        if i % 4 == 2:
            steps.append(
                (Step("write", f"notes_{i}.md", f"# Notes on module {i}\n\nNothing is wrong.\n" * 6),)
            )
        if i == 4:
            steps.append((Step("delegate", f"{DELEGATED} look at {module(0)} and count its functions."),))
        if i == 8:
            tasks = (f"{DELEGATED} look at {module(k)} and name its constants." for k in (1, 2))
            steps.append(tuple(Step("delegate", one) for one in tasks))
    return steps


MAIN = _main_steps()
SUB: list[Sequence[Step]] = [
    (Step("run", "ls"),),
    (Step("read", module(0)),),
    (Step("run", f"wc -l {module(0)}"),),
]
SHORT: list[Sequence[Step]] = [
    (Step("run", "ls"),),
    (Step("write", "hello.txt", "Hello.\n"),),
    (Step("read", "hello.txt"),),
]

# The tools of the programs, by action, with their arguments.
TOOLS: dict[str, dict[str, Any]] = {
    "run": {
        "Bash": lambda step, _: {"command": step.target, "description": "Look at the project"},
        "exec_command": lambda step, _: {"cmd": step.target},
        "shell_command": lambda step, _: {"command": step.target},
        "bash": lambda step, _: {"command": step.target, "description": "Look at the project"},
        "run_shell_command": lambda step, _: {"command": step.target, "is_background": False},
    },
    "read": {
        "Read": lambda step, folder: {"file_path": f"{folder}/{step.target}"},
        "read": lambda step, folder: {"filePath": f"{folder}/{step.target}"},
        "read_file": lambda step, folder: {"file_path": f"{folder}/{step.target}"},
    },
    "write": {
        "Write": lambda step, folder: {"file_path": f"{folder}/{step.target}", "content": step.text},
        "write": lambda step, folder: {"filePath": f"{folder}/{step.target}", "content": step.text},
        "write_file": lambda step, folder: {"file_path": f"{folder}/{step.target}", "content": step.text},
    },
    "delegate": {
        "Task": lambda step, _: _delegated(step, "general-purpose"),
        "Agent": lambda step, _: _delegated(step, "general-purpose"),
        "task": lambda step, _: _delegated(step, "general"),
        "agent": lambda step, _: _delegated(step, "general-purpose"),
        "spawn_agent": lambda step, _: {"message": step.target},
    },
}


def _delegated(step: Step, kind: str) -> dict[str, Any]:
    return {"description": "Look at a module", "prompt": step.target, "subagent_type": kind}


def _in_shell(step: Step) -> Step:
    """Return a step for a program that has a shell only."""
    if step.action == "read":
        return Step("run", f"cat {step.target}")
    if step.action == "write":
        return Step("run", f"cat > {step.target} <<'END'\n{step.text}END")
    return Step("run", f"wc {module(0)}")


def call(step: Step, offered: Iterable[str], folder: str) -> tuple[str, dict[str, Any]]:
    """Return the call of an offered tool that does the step."""
    names = set(offered)
    for one in (step, _in_shell(step)):
        for name, arguments in TOOLS[one.action].items():
            if name in names:
                return name, arguments(one, folder)
    raise LookupError(f"no tool for {step.action} among {', '.join(sorted(names))}")


class Script:
    """The answers of one session. `folder` is where the project lies.

    A sub-agent's step follows from its conversation. The main conversation may be compacted meanwhile, so its steps are
    counted here.
    """

    def __init__(self, folder: str, main: Sequence[Sequence[Step]] = MAIN) -> None:
        self._folder = folder
        self._main = main
        self._n_main = 0

    def answer(self, asked: Asked) -> Answer:
        if "SEARCH/REPLACE" in asked.text and not asked.tools:
            return Answer(_edit(asked.n_users))
        if _SUMMARY.search(asked.last):
            return Answer(
                "<summary>The modules were read one after the other, and nothing is wrong.</summary>"
            )
        if not asked.tools:
            return Answer('{"title": "Look at the modules", "isNewTopic": true}')
        if DELEGATED in asked.text:
            return self._step(SUB, _index(SUB, asked.n_calls), asked)
        self._n_main += 1
        return self._step(self._main, self._n_main - 1, asked)

    def _step(self, steps: Sequence[Sequence[Step]], index: int, asked: Asked) -> Answer:
        if index >= len(steps):
            return Answer(DONE)
        calls = [call(one, asked.tools, self._folder) for one in steps[index]]
        return Answer(f"I go on with step {index + 1}.", calls)


def _index(steps: Sequence[Sequence[Step]], n_calls: int) -> int:
    """Return the step after so many calls."""
    sums = itertools.accumulate(len(step) for step in steps)
    return sum(n_so_far <= n_calls for n_so_far in sums)


def _edit(n: int) -> str:
    """Return an edit in aider's format."""
    i = n % N_MODULES
    old = f"def function_{i}_0(value: int) -> int:"
    changes = f"<<<<<<< SEARCH\n{old}\n=======\n# Turn {n}.\n{old}\n>>>>>>> REPLACE"
    return f"I add a comment.\n\n{module(i)}\n```python\n{changes}\n```\n"


def texts(value: Any) -> str:
    """Return all texts of a message's content."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return texts(value.get("text") or value.get("content") or "")
    if isinstance(value, Sequence):
        return "\n".join(texts(one) for one in value)
    return ""
