"""What the person at the terminal sees: progress of the long parts and the one line of a failure.
Writes to stderr only (stdout carries results, such as paths, for scripts), or to the display of a build that
runs several parts at once.
"""

import errno
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, Protocol, TextIO

LINE_SECONDS = 15.0  # without a terminal: never silent for longer than this
REDRAW_SECONDS = 0.1


class SetupError(Exception):
    """A failure whose text is one line saying what is wrong and what to do next."""


# What tools print when the disk or a quota is full; compilers and pip only tell us through their output.
DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def says_disk_full(output: str) -> bool:
    return any(text in output for text in DISK_FULL_TEXTS)


class Display(Protocol):
    """Takes all progress instead of stderr, from any thread."""

    def part(self, title: str, text: str, done: int = 0, total: int = 0, step: str = "") -> None:
        """How far the part is; `step` names what it has just finished."""

    def close(self, title: str) -> None:
        """The part is done."""

    def expect(self, title: str, steps: list[str]) -> None:
        """The steps that the part has before it."""

    def learn(self, title: str, durations: dict[str, float]) -> None:
        """The seconds that each of the part's steps has taken."""

    def say(self, text: str) -> None:
        """A line for the reader, such as one of a failed tool's output."""


_display: Display | None = None


def show_on(display: Display | None) -> None:
    """Sends all progress to `display`, or to stderr again."""
    global _display
    _display = display


def display() -> Display | None:
    return _display


def say(text: str) -> None:
    if _display:
        _display.say(text)
    else:
        print(text, file=sys.stderr, flush=True)


def stage(title: str, text: str) -> None:
    """Says that a part has come to something new."""
    if _display:
        _display.part(title, text)
    else:
        say(f"{title}: {text}")


def close(title: str) -> None:
    """Says that a part which has no `Progress` is done; without a display nobody asks."""
    if _display:
        _display.close(title)


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def lines_or_silence(stream: IO[str]) -> Iterator[str | None]:
    """The lines of a tool as they come, and None whenever it has said nothing for a while."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    while True:
        try:
            line = lines.get(timeout=LINE_SECONDS)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


class Line:
    """The last line of a stream: redrawn on a terminal, elsewhere another one each time."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream or sys.stderr
        self.is_redrawn = self.stream.isatty()
        self._width = 0

    def write(self, text: str) -> None:
        if self.is_redrawn:
            text = text[: self._columns() - 1]  # a line that wraps cannot be redrawn
            self.stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def clear(self) -> None:
        if self._width:
            self.stream.write("\r" + " " * self._width + "\r")
            self._width = 0

    def leave(self) -> None:
        """What follows begins below a redrawn line."""
        if self._width:
            self.stream.write("\n")
            self.stream.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self.stream.fileno()).columns or 80
        except OSError:
            return 80


class Progress:
    """One long part. On a terminal its line is redrawn; elsewhere a line appears about every 10 %."""

    def __init__(self, title: str, *, in_bytes: bool = False, stream: TextIO | None = None) -> None:
        self._title = title
        self._in_bytes = in_bytes
        self._line = Line(stream)
        self._shown_at = 0.0
        self._shown_tenth = -1

    def update(self, done: int, total: int, note: str = "", step: str = "") -> None:
        if _display:
            _display.part(self._title, self._counted(done, total), done, total, step)
            return
        now = time.monotonic()
        tenth = done * 10 // total if total else 0
        if self._line.is_redrawn:
            due = now - self._shown_at >= REDRAW_SECONDS
        else:
            due = tenth > self._shown_tenth or now - self._shown_at >= LINE_SECONDS
        if not due:
            return
        self._shown_at, self._shown_tenth = now, tenth
        self._line.write(f"{self._title}: {self._counted(done, total)}{' ' + note if note else ''}")

    def note(self, text: str) -> None:
        """A sign of life where there is nothing to count."""
        if _display:
            _display.part(self._title, text)
        elif self._line.is_redrawn or time.monotonic() - self._shown_at >= LINE_SECONDS:
            self._shown_at = time.monotonic()
            self._line.write(f"{self._title}: {text}")

    def close(self, text: str) -> None:
        if _display:
            _display.close(self._title)
            return
        self._line.write(f"{self._title}: {text}")
        self._line.leave()

    def abandon(self) -> None:
        """Leaves the redrawn line, so that an error does not start in the middle of it."""
        self._line.leave()

    def _counted(self, done: int, total: int) -> str:
        if self._in_bytes:
            return f"{done / 1e6:.1f} of {megabytes(total)}"
        return f"[{done}/{total}]"
