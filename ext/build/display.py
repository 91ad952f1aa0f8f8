"""The progress line of a build, for everything that runs at the same time. It is redrawn on a terminal; in a log, a new
line is written now and then. Any thread may report; a separate thread redraws. Knows nothing of what is built.
"""

import threading
import time
from typing import TextIO

from recipe.report import Line

from .estimate import Estimate, History, in_words

REDRAW_SECONDS = 0.5
LINE_SECONDS = 30.0  # time between two lines in a log
QUIET_SECONDS = 2.0  # a build that ends sooner writes no line to a log
SHORT = {"llama.cpp libraries": "llama.cpp", "llama.cpp sources": "sources", "Python packages": "packages"}


class BuildDisplay:
    """report.Display for a whole build."""

    def __init__(self, history: History, n_jobs: int, stream: TextIO | None = None) -> None:
        self._history = history
        self._estimate = Estimate(n_jobs, history.durations)
        self._line = Line(stream)
        self._lock = threading.RLock()
        self._texts: dict[str, str] = {}
        self._began = time.monotonic()
        self._begun: dict[str, float] = {}
        self._shown_at: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._redraw, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def plan(self, *titles: str) -> None:
        with self._lock:
            for title in titles:
                self._estimate.plan(title)

    def part(self, title: str, text: str, done: int = 0, total: int = 0, step: str = "") -> None:
        now = time.monotonic()
        with self._lock:
            self._begun.setdefault(title, now)
            self._texts[title] = text
            if step:
                self._estimate.finish_step(title, step, now)
            elif total:
                self._estimate.advance(title, done / total)

    def expect(self, title: str, steps: list[str]) -> None:
        with self._lock:
            self._estimate.expect(title, steps)

    def close(self, title: str) -> None:
        with self._lock:
            self._texts.pop(title, None)
            self._estimate.close(title)
            if title in self._begun and not self._estimate.has_steps(title):
                self._history.learn(title, {"": time.monotonic() - self._begun[title]})

    def learn(self, title: str, durations: dict[str, float]) -> None:
        with self._lock:
            self._history.learn(title, durations)

    def say(self, text: str) -> None:
        with self._lock:
            self._say(text)

    def finish(self, succeeded: bool) -> None:
        """Write the last line, unless the build had nothing to do."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:
            self._line.clear()
            if succeeded and self._begun:
                self._history.save()
            if succeeded and self._shown_at is not None:
                self._say(f"llamad: built in {_clock(time.monotonic() - self._began)}")

    def line(self) -> str:
        with self._lock:
            percent = int(self._estimate.fraction() * 100)
            left = in_words(self._estimate.seconds_left(time.monotonic()))
            texts = [f"{SHORT.get(title, title)} {text}" for title, text in self._texts.items()]
        return f"llamad: building, {percent} %, {left} left ({', '.join(texts)})"

    def _redraw(self) -> None:
        while not self._over.wait(REDRAW_SECONDS):
            with self._lock:
                if self._texts and self._is_due(time.monotonic()):
                    self._draw()

    def _is_due(self, now: float) -> bool:
        if self._line.is_redrawn:
            return True
        if self._shown_at is None:
            return now - min(self._begun.values(), default=now) >= QUIET_SECONDS
        return now - self._shown_at >= LINE_SECONDS

    def _draw(self) -> None:
        self._shown_at = time.monotonic()
        self._line.write(self.line())

    def _say(self, text: str) -> None:
        self._line.clear()
        self._line.stream.write(text + "\n")
        self._line.stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
