"""Estimates how long a build will still take, from the times that its steps took in the last build and from its speed
today. Work is counted in seconds of one core. Arithmetic only; display.py shows the result.
"""

import json
import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

# Seconds of one core for each part, and for a step of it, for the estimate of a first build. They were measured on a
# machine with two cores (Xeon, 2.x GHz), which took 10 minutes for everything.
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
PRIOR_SECONDS = 60.0  # today's speed is mixed with the last build's speed, which has this weight


@dataclass
class Part:
    """A part of the build. `ahead` has the steps that are left, or is None while they are not known."""

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
    """The parts of one build. The caller must hold a lock."""

    def __init__(self, n_jobs: int, history: dict[str, dict[str, float]]) -> None:
        self._n_jobs = n_jobs
        self._history = history
        self.parts: dict[str, Part] = {}
        self._compiled = 0.0  # the work of the steps that are done
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
    """The times that each step took in the last build, by part, in a file of the cache. Without the file only the
    estimate is worse."""

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
