"""How long a build will still take: the work ahead in seconds of one core, from what the steps took last time, and
how fast it goes today. Arithmetic only; display.py shows it.
"""

import json
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

# Seconds of one core for each part, and for a step of it, on the machine that this was written on; what a first
# build goes by. Two such cores, Xeon at 2.x GHz, took 10 minutes for all of it.
PART_SECONDS = {
    "environment": 4.0,
    "build tools": 12.0,
    "Python packages": 20.0,
    "llama.cpp sources": 10.0,
    "llama.cpp libraries": 650.0,
    "modules": 260.0,
    "default model": 10.0,
}
STEP_SECONDS = {"llama.cpp libraries": 4.6, "modules": 1.6}
HISTORY = "durations.json"
PRIOR_SECONDS = 60.0  # so much work counts as done at last time's speed before today's speed is believed


@dataclass
class Part:
    """`ahead` has the steps that are known; before that, the whole part is one sum."""

    expected: float
    ahead: dict[str, float] | None = None
    done: float = 0.0
    fraction: float = 0.0

    @property
    def left(self) -> float:
        if self.ahead is not None:
            return sum(self.ahead.values())
        return self.expected * (1 - self.fraction)

    @property
    def total(self) -> float:
        return self.left + self.done if self.ahead is not None else self.expected


class Estimate:
    """The parts of one build. The caller keeps threads apart."""

    def __init__(self, n_jobs: int, history: dict[str, dict[str, float]]) -> None:
        self._n_jobs = n_jobs
        self._history = history
        self.parts: dict[str, Part] = {}
        self._compiled = 0.0  # work done in steps, and since when
        self._compiling_since: float | None = None

    def plan(self, title: str) -> None:
        """Add a part that will be needed."""
        known = sum(self._history.get(title, {}).values())
        self.parts.setdefault(title, Part(known or PART_SECONDS.get(title, 0.0)))

    def expect(self, title: str, steps: list[str]) -> None:
        part = self._part(title)
        known = self._history.get(title, {})
        usual = statistics.median(known.values()) if known else STEP_SECONDS.get(title, 1.0)
        part.ahead = {step: known.get(step, usual) for step in steps}

    def finish_step(self, title: str, step: str, now: float) -> None:
        part = self._part(title)
        seconds = (part.ahead or {}).pop(step, 0.0)
        part.done += seconds
        self._compiled += seconds
        if self._compiling_since is None:
            self._compiling_since = now

    def advance(self, title: str, fraction: float) -> None:
        self._part(title).fraction = min(1.0, fraction)

    def close(self, title: str) -> None:
        part = self._part(title)
        part.fraction = 1.0
        part.ahead = {} if part.ahead is not None else None

    def has_steps(self, title: str) -> bool:
        return self._part(title).ahead is not None

    def fraction(self) -> float:
        total = sum(part.total for part in self.parts.values())
        return 1 - self._left() / total if total else 1.0

    def seconds_left(self, now: float) -> float:
        return self._left() * self._slowness(now) / self._n_jobs

    def _left(self) -> float:
        return sum(part.left for part in self.parts.values())

    def _slowness(self, now: float) -> float:
        """Return how many times as long as in the last build the work takes today."""
        if self._compiling_since is None:
            return 1.0
        spent = (now - self._compiling_since) * self._n_jobs
        return (spent + PRIOR_SECONDS) / (self._compiled + PRIOR_SECONDS)

    def _part(self, title: str) -> Part:
        self.plan(title)
        return self.parts[title]


@dataclass
class History:
    """What each step took the last time, by part, in one file of the cache. A file that cannot be read or written
    costs the estimate and nothing else."""

    path: Path
    durations: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> "History":
        path = folder / HISTORY
        try:
            parts = json.loads(path.read_text(encoding="utf-8"))
            clean = {str(t): {str(s): float(n) for s, n in steps.items()} for t, steps in parts.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            clean = {}
        return cls(path, clean)

    def learn(self, title: str, durations: dict[str, float]) -> None:
        self.durations[title] = durations

    def save(self) -> None:
        partial = self.path.with_name(f"{HISTORY}.{os.getpid()}")
        try:
            partial.write_text(json.dumps(self.durations, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            partial.rename(self.path)
        except OSError:
            pass


def in_words(seconds: float) -> str:
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"{round(seconds, -1):.0f} s"
    return f"{seconds / 60:.0f} min"
