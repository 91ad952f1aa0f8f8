"""Shows the progress of a build, and a failure in one line. Writes to stderr only, because stdout has results for
scripts, such as paths; or to the display of a build that runs several parts at once.
"""

import errno
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, Protocol, TextIO

LINE_SECONDS = 15.0  # without a terminal: the longest time without a line
REDRAW_SECONDS = 0.1


class SetupError(Exception):
    """A failure. Its text is one line that says what is wrong and what to do."""


# What tools print when the disk or a quota is full; compilers and pip have no exit status for it.
DISK_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "[Errno 28]", "[Errno 122]")


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def says_disk_full(output: str) -> bool:
    return any(text in output for text in DISK_FULL_TEXTS)


class Display(Protocol):
    """Receives all progress in place of stderr, from any thread."""

    def part(self, title: str, text: str, done: int = 0, total: int = 0, step: str = "") -> None:
        """Note how far the part is; `step` is the step that it has just finished."""

    def close(self, title: str) -> None:
        """Note that the part is done."""

    def expect(self, title: str, steps: list[str]) -> None:
        """Set the steps that the part will take."""

    def learn(self, title: str, durations: dict[str, float]) -> None:
        """Store how many seconds each of the part's steps took."""

    def say(self, text: str) -> None:
        """Print a line, such as one of the output of a tool that failed."""


_display: Display | None = None


def show_on(display: Display | None) -> None:
    """Send all progress to `display`, or with None to stderr again."""
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
    """Report that a part begins something new."""
    if _display:
        _display.part(title, text)
    else:
        say(f"{title}: {text}")


def close(title: str) -> None:
    """Report to the display, if there is one, that a part without a `Progress` is done."""
    if _display:
        _display.close(title)


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def lines_or_silence(stream: IO[str]) -> Iterator[str | None]:
    """Yield the lines of a tool as they come, and None whenever it has printed nothing for a while."""
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
    """The last line of a stream. It is redrawn on a terminal; elsewhere each text is a new line."""

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
        """Let the following output begin below a redrawn line."""
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
        """Show a text for a part that has nothing to count."""
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
        """Leave the redrawn line, so that an error does not begin in the middle of it."""
        self._line.leave()

    def _counted(self, done: int, total: int) -> str:
        if self._in_bytes:
            return f"{done / 1e6:.1f} of {megabytes(total)}"
        return f"[{done}/{total}]"
