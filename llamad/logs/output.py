"""The destinations of log lines: standard error, and the log file, which can be reopened.

Any thread. If a destination fails, it drops lines, counts them and reports that later; it must never fail a request.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from llamad.logs.format import Formatter

# The mode of a new log file. The file names clients, and with --log-prompts has what they wrote. The group may read it.
_MODE = 0o640


def is_journal(fd: int, environ: Mapping[str, str]) -> bool:
    """Return whether a descriptor is the stream that systemd's journal reads; JOURNAL_STREAM identifies it."""
    named = environ.get("JOURNAL_STREAM", "")
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return named == f"{status.st_dev}:{status.st_ino}"


class Output(logging.Handler):
    """A destination of whole lines. Each batch is one write, so that other writers of the same file split no line."""

    def __init__(self, fd: int, formatter: Formatter) -> None:
        super().__init__()
        self._fd = fd
        self._formatter = formatter
        self._n_lost = 0  # lines lost since the last successful write
        self._is_cut = False  # the last line was written only in part
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.write(self.format(record) + "\n")
        except Exception:  # the logging call is wrong, such as a wrong number of arguments
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
        """Return the text that must come first after a failed write: the end of a cut line, and a warning."""
        if not self._n_lost:
            return b""
        name, words = "llamad.log", "%d lines could not be written here and are lost"
        record = logging.LogRecord(name, logging.WARNING, "", 0, words, (self._n_lost,), None)
        return b"\n" * self._is_cut + self.format(record).encode() + b"\n"


class FileOutput(Output):
    """The log file. Lines are appended, so that a program which truncates the file leaves no hole. Raises OSError."""

    def __init__(self, path: str, formatter: Formatter, truncate: bool) -> None:
        self._path = os.path.abspath(path)
        super().__init__(self._open(os.O_TRUNC if truncate else 0), formatter)

    def _open(self, flags: int = 0) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | flags, _MODE)

    def reopen(self) -> None:
        """Continue in a new file of the same name, after the old one was moved away. If it cannot be opened, raise
        OSError and continue in the old one."""
        new = self._open()
        assert self.lock is not None
        with self.lock:
            old, self._fd = self._fd, new
        os.close(old)
