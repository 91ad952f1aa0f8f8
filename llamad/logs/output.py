"""Owns where log lines go: a descriptor each for standard error and for the log file, which can be opened again.

Any thread. A destination that fails loses lines, counts them and says so later; it must never fail a request.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from llamad.logs.format import Formatter

# Of a new log file: it names clients, and with --log-prompts has what they wrote. A group may read logs.
_MODE = 0o640


def is_journal(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether a descriptor is the stream that systemd's journal reads, as JOURNAL_STREAM says."""
    named = environ.get("JOURNAL_STREAM", "")
    try:
        found = os.fstat(fd)
    except OSError:
        return False
    return named == f"{found.st_dev}:{found.st_ino}"


class Output(logging.Handler):
    """A destination of whole lines. Each batch is one write, so that other writers of the same file cut none in two."""

    def __init__(self, fd: int, formatter: Formatter) -> None:
        super().__init__()
        self._fd = fd
        self._formatter = formatter
        self._n_lost = 0  # lines, since the last that could be written
        self._is_cut = False  # the last line has no end
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record) + "\n")
        except Exception:  # a mistake in the call, such as a wrong number of arguments
            self.handleError(record)

    @property
    def is_json(self) -> bool:
        return self._formatter.is_json

    def write_access(self, created: float, lines: list[str]) -> None:
        self.write(self._formatter.access(created, lines))

    def write(self, text: str) -> None:
        assert self.lock is not None
        with self.lock:
            data = self._before() + text.encode("utf-8", "backslashreplace")
            n_done = 0
            try:
                while n_done < len(data):
                    n_done += os.write(self._fd, data[n_done:] if n_done else data)
            except OSError:  # no space, no reader
                self._n_lost += text.count("\n")
                self._is_cut = data[n_done - 1] != 0x0A if n_done else self._is_cut
                return
            self._n_lost, self._is_cut = 0, False

    def _before(self) -> bytes:
        """What mends the output after a write that failed."""
        if not self._n_lost:
            return b""
        name, words = "llamad.log", "%d lines could not be written here and are lost"
        record = logging.LogRecord(name, logging.WARNING, "", 0, words, (self._n_lost,), None)
        return b"\n" * self._is_cut + self.format(record).encode() + b"\n"


class FileOutput(Output):
    """The log file. Appends, so that a program which truncates it leaves no hole. Raises OSError."""

    def __init__(self, path: str, formatter: Formatter, truncate: bool) -> None:
        self._path = os.path.abspath(path)
        super().__init__(self._open(os.O_TRUNC if truncate else 0), formatter)

    def _open(self, flags: int = 0) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flags, _MODE)

    def reopen(self) -> None:
        """Go on in a new file of the same name, after the old one was moved away. Raises OSError and goes on in the old
        one if there can be none."""
        new = self._open()
        assert self.lock is not None
        with self.lock:
            old, self._fd = self._fd, new
        os.close(old)
