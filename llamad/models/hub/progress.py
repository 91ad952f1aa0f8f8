"""The progress of a download: bytes, rate, time left, and their text.

The thread that downloads writes a Meter; any thread may read it.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable

log = logging.getLogger("llamad.download")

WINDOW_SECONDS = 10.0  # the rate is measured over this time
SAMPLE_SECONDS = 0.1
LINE_SECONDS = 0.2  # the time between two updates on a terminal
LOG_SECONDS = 5.0  # the time between two lines of the log
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Meter:
    """The progress of all files of one model together. `total` is 0 while it is not known."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.name = ""
        self.total = 0
        self.done = 0
        self._before = 0  # bytes of complete files
        self._now = now
        self._samples: deque[tuple[float, int]] = deque()

    def begin_file(self, name: str) -> None:
        self._before = self.done
        self.name = name
        self._samples.clear()

    def set_file(self, done: int) -> None:
        """Set how much of the current file is there. What was there at the start does not count for the rate."""
        self.done = self._before + done
        now = self._now()
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, self.done))
            while now - self._samples[0][0] > WINDOW_SECONDS and len(self._samples) > 2:
                self._samples.popleft()

    def set_file_total(self, total: int) -> None:
        """Set the size of the current file, if it was not known before."""
        self.total = max(self.total, self._before + total)

    @property
    def percent(self) -> int | None:
        """Return the percentage, or None if the total is not known."""
        return min(100, 100 * self.done // self.total) if self.total else None

    @property
    def rate(self) -> float:
        """Return the bytes per second, or 0 if they are not known."""
        samples = list(self._samples)
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return 0.0
        return max(0.0, (samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0]))

    @property
    def seconds_left(self) -> int | None:
        rate = self.rate
        return round((self.total - self.done) / rate) if rate > 0 and self.total >= self.done > 0 else None

    def text(self) -> str:
        parts = [size_text(self.done) + (f" of {size_text(self.total)}" if self.total else "")]
        if self.percent is not None:
            parts.insert(0, f"{self.percent} %")
        if self.rate > 0:
            parts.append(f"{size_text(round(self.rate))}/s")
        if self.seconds_left is not None:
            parts.append(f"{time_text(self.seconds_left)} left")
        return ", ".join(parts)


class Display:
    """Shows a meter: on a terminal as one line that is rewritten, else as a line of the log now and then."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._is_terminal = log.isEnabledFor(logging.INFO) and sys.stderr.isatty()
        self._t_next = 0.0

    def update(self) -> None:
        now = time.monotonic()
        if now < self._t_next:
            return
        text = f"downloading {self._meter.name}: {self._meter.text()}"
        if self._is_terminal:
            self._t_next = now + LINE_SECONDS
            width = shutil.get_terminal_size().columns - 1
            # The cursor stays at the line's start, so that a log line can overwrite it.
            print(f"\r\033[K{text[:width]}\r", end="", file=sys.stderr, flush=True)
        else:
            self._t_next = now + LOG_SECONDS
            log.info("%s", text)

    def clear(self) -> None:
        """Remove the line from the terminal, to make room for other output."""
        if self._is_terminal and self._t_next:
            self._t_next = 0.0
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def size_text(n: int) -> str:
    """Return a size for people, such as 1.50 GiB."""
    value = float(n)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            digits = 0 if unit == "B" or value >= 100 else 1 if value >= 10 else 2
            return f"{value:.{digits}f} {unit}"
        value /= 1024
    raise AssertionError


def time_text(seconds: int) -> str:
    """Return a time for people, such as 9 s, 4:05 or 1:02:03."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
